"""BM25 over page texts, without stemming. jieba splits Chinese into words."""

from __future__ import annotations

import re
import unicodedata

from seer.schema import Document
from seer.selection.ranking import rank_by

_CJK = re.compile("[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_RUN = re.compile("[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+|[^\\W\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")
_DIVIDED = re.compile(r"([^\W\d_]+)[-\u2010][^\S\n]*\n\s*([^\W\d_]+)")
_INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u200b\u2060\ufeff"))


def words(text: str) -> list[str]:
    """Return the words and numbers of a text in lower case; jieba splits runs of Chinese or Japanese."""
    # One spelling for composed and decomposed accents, ligatures and full-width letters; soft hyphens are not seen.
    text = unicodedata.normalize("NFKC", text.translate(_INVISIBLE))
    lower = text.lower()
    # A hyphen at a line's end may divide a word or belong to it, so both readings count.
    runs = _RUN.findall(lower) + [first + second for first, second in _DIVIDED.findall(lower)]
    if not _CJK.search(text):
        return runs
    import jieba

    jieba.setLogLevel(60)  # jieba otherwise logs the loading of its dictionary to stderr
    return [word for run in runs for word in (jieba.cut(run) if _CJK.match(run) else (run,))]


class BM25:
    """Ranks pages by Okapi BM25 (Robertson and Zaragoza, 2009), with k1 = 1.5 and b = 0.75. Ties go to the earlier page.

    Without a usable word in the question or in any page, the pages keep their order.
    """

    name = "bm25"

    def rank(self, document: Document, question: str) -> list[int]:
        return rank_by(self.scores(document, question))

    def scores(self, document: Document, question: str) -> list[float]:
        import bm25s

        corpus = [words(page.text) for page in document.pages]
        query = words(question)
        if not query or not any(corpus):
            return [0.0] * len(corpus)
        index = bm25s.BM25(k1=1.5, b=0.75)
        index.index(corpus, show_progress=False)
        return [float(score) for score in index.get_scores(query)]
