"""Which elements of a web page are hidden: by attribute, by their own style, or by simple rules of a style sheet."""

from __future__ import annotations

import re

_RULE = re.compile(r"([^{}]{1,2000})\{([^{}]*)\}")
_MEDIA = re.compile(r"@media([^{}]{0,500})\{((?:[^{}]*\{[^{}]*\})*+[^{}]*)\}")
_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)
_SELECTOR = re.compile(r"([a-z][a-z0-9]*)?((?:[.#][\w-]+)*)", re.IGNORECASE)
_HIDING = re.compile(
    r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|content-visibility\s*:\s*hidden"
    r"|opacity\s*:\s*0*(?:\.0+)?(?=\s*(?:;|!|$))|font-size\s*:\s*0+(?:\.0+)?(?:px|pt|em|rem|%)?(?=\s*(?:;|!|$)))",
    re.IGNORECASE,
)
_MAX_RULES = 500


def hides(declarations: str) -> bool:
    """Return whether a list of CSS declarations makes an element invisible."""
    return bool(_HIDING.search(declarations))


class HidingRules:
    """Selectors of one element (`p`, `.note`, `#x`, `p.note`) whose rules hide it; other selectors are not understood."""

    def __init__(self) -> None:
        self._rules: list[tuple[str, frozenset[str], str]] = []

    def add(self, sheet: str) -> None:
        """Read the content of a <style> element. Rules for print and other media than the screen are ignored."""
        sheet = _COMMENT.sub("", sheet)
        sheet = _MEDIA.sub(lambda media: media[2] if re.search(r"\b(screen|all)\b", media[1]) else "", sheet)
        for selectors, declarations in _RULE.findall(sheet):
            if not hides(declarations):
                continue
            for selector in selectors.split(","):
                match = _SELECTOR.fullmatch(selector.strip())
                if match and match[0] and len(self._rules) < _MAX_RULES:
                    marks = re.findall(r"[.#][\w-]+", match[2])
                    classes = frozenset(mark[1:] for mark in marks if mark[0] == ".")
                    ids = [mark[1:] for mark in marks if mark[0] == "#"]
                    self._rules.append(((match[1] or "").lower(), classes, ids[0] if ids else ""))

    def match(self, tag: str, attributes: dict[str, str]) -> bool:
        """Return whether a rule hides an element."""
        if not self._rules:
            return False
        classes, identity = set(attributes.get("class", "").split()), attributes.get("id", "")
        return any(
            (not name or name == tag) and needed <= classes and (not wanted or wanted == identity)
            for name, needed, wanted in self._rules
        )
