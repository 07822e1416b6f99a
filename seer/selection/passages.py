"""Passages: the excerpts of a document that match a question best, within a limit of tokens.

    index = PassageIndex(document, "When was the treaty signed?")
    excerpts = index.choose(pages=(2, 5), max_tokens=1000, count=encoder.count_text)

A window is three neighbouring sentences of one page. BM25 with all windows of the document as its collection orders the
windows. The best ones are taken until the limit is reached, touching windows are merged, and tokens that are left go to
neighbouring sentences. Every excerpt is an exact part of the source text, in document order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np

from seer.protocol.turns import observation, render_observation
from seer.rendering.layout.sentences import is_boundary, sentences
from seer.schema import Document, Excerpt
from seer.selection.lexical import BM25, words

Count = Callable[[str], int]
"""Number of tokens of a text."""

SENTENCES_PER_WINDOW = 3
PASSAGE_TOKENS = 1000
"""Default limit of the tokens of one question's passages."""
PASSAGE_PAGES = 3
"""Default number of pages that a selector chooses if passages are retrieved."""
MIN_LEAD_TOKENS = 200
"""Smallest limit at which a passage keeps the beginning of its paragraph; below it, the beginning displaces evidence."""
LEAD_CHARS = 60
"""Longest beginning of a paragraph."""
HEADING_CHARS = 80
"""Longest line above a paragraph that is kept with it."""
_LABEL_TOKENS, _GAP_TOKENS = 6, 3
"""Estimated tokens of "Text from image 12: " and of the mark between two excerpts."""
_MAX_MISSES = 40
"""Windows that may be too long for the tokens that are left before the search ends."""
_K1, _B = 1.5, 0.75
_STOP_WORDS = (
    "the a an of in on at to and or is are was were be been by for with as that this it its from what which who whom "
    "whose when where why how did do does has have had not no he she they his her their you i we these those there then "
    "than also if into about over after before can could would should may will one 的 了 是 在 和 与 吗 呢 什么 哪 哪些 哪个 "
    "谁 怎么 如何 多少"
)
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Words of questions that do not tell passages apart."""


def estimate_tokens(text: str) -> int:
    """Return a cautious number of tokens for engines without a tokenizer: one for every three bytes of UTF-8."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // 3)


class PassageIndex:
    """The sentences of a document and the windows over them, scored for one question."""

    def __init__(self, document: Document, question: str) -> None:
        self.document = document
        self.spans: list[tuple[int, int]] = []
        pages: list[int] = []
        for page in document.pages:
            found = sentences(page.text, page.start)
            self.spans += found
            pages += [page.number] * len(found)
        self.page = pages
        """Page number of each sentence."""
        self.windows = _windows(pages, SENTENCES_PER_WINDOW)
        """(first, last) sentence of each window, `last` excluded."""
        self.scores = self._score(question)
        self._costs: dict[int, int] = {}

    def matches(self, pages: Collection[int]) -> bool:
        """Return whether any window of these pages shares a word with the question."""
        return any(
            score > 0 and self.page[first] in pages for (first, _), score in zip(self.windows, self.scores, strict=True)
        )

    def choose(self, pages: Collection[int], max_tokens: int, count: Count) -> tuple[Excerpt, ...]:
        """Return the best excerpts of these pages in document order; empty if no window matches or fits.

        The rendered observation of the excerpts takes at most `max_tokens` by `count`.
        """
        room = max_tokens
        while room > 0:
            taken = self._fill(frozenset(pages), room, count)
            if not taken:
                return ()
            excerpts = self._excerpts(taken, leads=max_tokens >= MIN_LEAD_TOKENS)
            cost = observed_tokens(excerpts, count)
            if cost <= max_tokens:
                return excerpts
            # The estimate leaves out leads, and joined text may take more tokens than its parts.
            room -= max(1, cost - max_tokens)
        return ()

    # ── Scores ───────────────────────────────────────────────────────────────────────────────────

    def _score(self, question: str) -> np.ndarray:
        """Return the BM25 score of every window: float of shape (windows,)."""
        scores = np.zeros(len(self.windows))
        asked = Counter(words(question))
        # A question of stop words only, such as a title, is better than no question.
        wanted = {word: times for word, times in asked.items() if word not in STOP_WORDS} or dict(asked)
        if not wanted or not self.windows:
            return scores
        text = self.document.text
        sizes = np.zeros(len(self.spans) + 1)
        hits = {word: np.zeros(len(self.spans) + 1) for word in wanted}
        for n, (start, end) in enumerate(self.spans, 1):
            in_sentence = words(text[start:end])
            sizes[n] = len(in_sentence)
            for word in in_sentence:
                if word in hits:
                    hits[word][n] += 1
        # Differences of cumulative sums give the counts of every window at once.
        first, last = np.array(self.windows).T
        length = _between(sizes, first, last)
        relative = length / max(1.0, float(length.mean()))
        for word, times in wanted.items():
            frequency = _between(hits[word], first, last)
            in_windows = int((frequency > 0).sum())
            rarity = np.log(1 + (len(self.windows) - in_windows + 0.5) / (in_windows + 0.5))
            scores += times * rarity * frequency / (frequency + _K1 * (1 - _B + _B * relative))
        return scores

    # ── Choice ───────────────────────────────────────────────────────────────────────────────────

    def _fill(self, pages: frozenset[int], room: int, count: Count) -> set[int]:
        """Return the sentences of the best windows, and of their neighbours, that fit into `room` tokens."""
        taken: set[int] = set()
        misses = 0
        for n in np.lexsort((np.arange(len(self.scores)), -self.scores)):
            first, last = self.windows[n]
            if self.scores[n] <= 0 or misses > _MAX_MISSES:
                break
            if self.page[first] not in pages:
                continue
            new = [at for at in range(first, last) if at not in taken]
            cost = self._added_cost(new, taken, count)
            if not new or cost > room:
                misses += bool(new)
                continue
            taken.update(new)
            room -= cost
        self._grow(taken, room, count)
        return taken

    def _added_cost(self, new: Sequence[int], taken: set[int], count: Count) -> int:
        """Return the estimated tokens that further sentences of one page add: text, label and gap mark."""
        cost = sum(self._cost(at, count) for at in new)
        if not new:
            return cost
        page = self.page[new[0]]
        touches = any(near in taken and self.page[near] == page for at in new for near in (at - 1, at + 1))
        if touches:
            return cost
        return cost + (_GAP_TOKENS if any(self.page[at] == page for at in taken) else _LABEL_TOKENS)

    def _cost(self, at: int, count: Count) -> int:
        if at not in self._costs:
            start, end = self.spans[at]
            self._costs[at] = count(self.document.text[start:end])
        return self._costs[at]

    def _grow(self, taken: set[int], room: int, count: Count) -> None:
        """Add neighbours of the taken sentences, one on each side at a time, while they fit into `room` tokens."""
        edge = sorted(taken)
        while edge and room > 0:
            added = []
            for at in edge:
                for near in (at + 1, at - 1):
                    inside = 0 <= near < len(self.spans) and self.page[near] == self.page[at]
                    if inside and near not in taken and self._cost(near, count) <= room:
                        taken.add(near)
                        room -= self._cost(near, count)
                        added.append(near)
            edge = added

    # ── Excerpts ─────────────────────────────────────────────────────────────────────────────────

    def _excerpts(self, taken: Iterable[int], *, leads: bool) -> tuple[Excerpt, ...]:
        """Merge sentences into one excerpt for each run, with its lead; a lead that does not touch is separate."""
        spans: list[tuple[int, int, int]] = []
        for at in sorted(taken):
            start, end = self.spans[at]
            begins_run = not spans or spans[-1][2] != start or spans[-1][0] != self.page[at]
            if leads and begins_run and (lead := self._lead(self.page[at], start)):
                spans.append((self.page[at], *lead))
            spans.append((self.page[at], start, end))
        merged: list[list[int]] = []
        for page, start, end in sorted(spans):
            if merged and merged[-1][0] == page and merged[-1][2] >= start:
                merged[-1][2] = max(merged[-1][2], end)
            else:
                merged.append([page, start, end])
        return tuple(self._excerpt(*span) for span in merged)

    def _excerpt(self, page: int, start: int, end: int) -> Excerpt:
        text = self.document.text[start:end]
        # Space before a gap mark has no use; at the page's end it lets a quote go on to the next page.
        if end != self.document.page(page).end:
            trimmed = text.rstrip()
            while not is_boundary(text, len(trimmed)):
                trimmed = text[: len(trimmed) + 1]
            text = trimmed or text
        return Excerpt(page=page, start=start, text=text)

    def _lead(self, page: int, start: int) -> tuple[int, int] | None:
        """Return the span of the paragraph's beginning and of a short line above it; None if neither precedes `start`."""
        low = self.document.page(page).start
        text = self.document.text
        paragraph = max(low, text.rfind("\n", low, start) + 1)
        begin, end = paragraph, min(start, paragraph + LEAD_CHARS)
        if end < start:
            space = text.rfind(" ", paragraph + LEAD_CHARS // 3, end)
            end = space if space > 0 else end
            while end > begin and not is_boundary(text, end):
                end -= 1
        above = text[low:paragraph].rstrip()
        heading = above[above.rfind("\n") + 1 :]
        if heading.strip() and len(heading) <= HEADING_CHARS:
            begin = low + len(above) - len(heading)
        return (begin, end) if begin < end and begin < start else None


class PassagePages:
    """Selects the pages that hold the best passages of the whole document, whatever their number.

    The budget of pages applies only if no passage matches the question: the pages are then those of BM25.
    """

    name = "passages"

    def select(self, document: Document, question: str, budget: int) -> tuple[int, ...]:
        index = PassageIndex(document, question)
        excerpts = index.choose({page.number for page in document.pages}, PASSAGE_TOKENS, estimate_tokens)
        pages = {excerpt.page for excerpt in excerpts} or BM25().rank(document, question)[:budget]
        return tuple(sorted(pages))


def observed_tokens(excerpts: Sequence[Excerpt], count: Count) -> int:
    """Return the tokens of the observation that carries these excerpts, without its marker."""
    return count(f"\n{render_observation(observation(excerpts))}\n")


def _windows(pages: Sequence[int], size: int) -> list[tuple[int, int]]:
    """Return (first, last) of every window of `size` sentences; a shorter page is one window."""
    windows = []
    first = 0
    for at in range(1, len(pages) + 1):
        if at < len(pages) and pages[at] == pages[first]:
            continue
        windows += [(n, min(n + size, at)) for n in range(first, max(first + 1, at - size + 1))]
        first = at
    return windows


def _between(counts: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Return sums of counts[first + 1 : last + 1]; counts[0] is 0, as sentence n is counted at n + 1."""
    total: np.ndarray = np.cumsum(counts)
    between: np.ndarray = total[last] - total[first]
    return between
