"""Parse page ranges such as "10-40", "1,3,7-9" and "200-", and check page counts. Pure functions."""

from __future__ import annotations

import re

from seer.errors import InputError

_RANGE = re.compile(r"\s*+(\d{1,9})?+\s*+(-)?+\s*+(\d{1,9})?+\s*+")  # possessive, so linear time


def parse_pages(text: str, num_pages: int) -> tuple[int, ...]:
    """Parse a list of pages and page ranges of a document of `num_pages` pages.

    Returns 1-based page numbers, ascending and unique. Raises InputError if `text` is malformed or names a page outside
    1 to `num_pages`.
    """
    chosen: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if not match or not (match[1] or match[3]):
            raise InputError(f"pages='{text[:80]}': not a list of pages; write for example 10-40, 1,3,7-9 or 200-")
        first = int(match[1]) if match[1] else 1
        last = int(match[3]) if match[3] else (num_pages if match[2] else first)
        if not 1 <= first <= last <= num_pages:
            raise InputError(
                f"pages '{part.strip()}': must lie within the document's pages, 1 to {num_pages}, in ascending order"
            )
        chosen.update(range(first, last + 1))
    return tuple(sorted(chosen))


def check_count(num_pages: int, max_pages: int | None, name: str) -> None:
    """Check a document against its page limit; `max_pages` None means no limit.

    Raises InputError if `num_pages` exceeds `max_pages`.
    """
    if max_pages is not None and num_pages > max_pages:
        raise InputError(
            f"'{name}' takes more than {max_pages} pages, the limit set by max_pages; use a shorter document, select "
            "pages of a PDF, or choose a denser style"
        )
