"""Page ranges as people write them: "10-40", "1,3,7-9", "200-"; and how many pages are too many. Pure."""

from __future__ import annotations

import re

from seer.errors import InputError

_RANGE = re.compile(r"\s*+(\d{1,9})?+\s*+(-)?+\s*+(\d{1,9})?+\s*+")  # possessive: linear, whatever arrives


def parse_pages(text: str, num_pages: int) -> tuple[int, ...]:
    """1-based page numbers in ascending order, each once. Raises InputError: malformed, or outside 1 to `num_pages`."""
    chosen: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if not match or not (match[1] or match[3]):
            raise InputError(f"'{text[:80]}' are no pages; write them as 10-40, 1,3,7-9 or 200-")
        first = int(match[1]) if match[1] else 1
        last = int(match[3]) if match[3] else (num_pages if match[2] else first)
        if not 1 <= first <= last <= num_pages:
            raise InputError(f"pages {part.strip()} were asked for; the document has pages 1 to {num_pages}")
        chosen.update(range(first, last + 1))
    return tuple(sorted(chosen))


def check_count(num_pages: int, max_pages: int | None, name: str) -> None:
    """Raises InputError where a document takes more pages than it may."""
    if max_pages is not None and num_pages > max_pages:
        raise InputError(
            f"'{name}' takes more than {max_pages} pages, and no more are allowed; give less of it, name some pages of a "
            "PDF, or choose a denser style"
        )
