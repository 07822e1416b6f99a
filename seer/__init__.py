"""Seer reads long documents as page images and retrieves their exact text where a question needs it.

Load a document, open a reader and ask a question:

    import seer

    document = seer.load("report.txt")
    reader = seer.Reader.from_checkpoint("path/to/checkpoint")
    answer = reader.ask(document, "What was the total?")
    print(answer.text, answer.citations, answer.usage.compression)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seer.errors import SeerError
    from seer.reading.policy import ReadingPolicy
    from seer.reading.reader import Reader
    from seer.rendering import load, load_bytes, render_text
    from seer.rendering.collection import combine
    from seer.schema import Answer, Document, Page, PageStyle

__version__ = "0.1.0"

_EXPORTS = {
    "Answer": "seer.schema",
    "Document": "seer.schema",
    "Page": "seer.schema",
    "PageStyle": "seer.schema",
    "Reader": "seer.reading.reader",
    "ReadingPolicy": "seer.reading.policy",
    "SeerError": "seer.errors",
    "combine": "seer.rendering.collection",
    "load": "seer.rendering",
    "load_bytes": "seer.rendering",
    "render_text": "seer.rendering",
}
__all__ = [
    "Answer",
    "Document",
    "Page",
    "PageStyle",
    "Reader",
    "ReadingPolicy",
    "SeerError",
    "__version__",
    "combine",
    "load",
    "load_bytes",
    "render_text",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `import seer` stays fast. Raises AttributeError for other names."""
    if name not in _EXPORTS:
        raise AttributeError(f"module 'seer' has no attribute '{name}'; available: {', '.join(_EXPORTS)}")
    from importlib import import_module

    return getattr(import_module(_EXPORTS[name]), name)
