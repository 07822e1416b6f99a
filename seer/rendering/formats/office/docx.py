"""Extract the text of Word documents (.docx): headers, paragraphs with their numbers, tables, notes, comments, footers.

    extract = read_docx(data, name, None)

Paragraphs end with a newline, table cells are separated by tabs. Text is that of the final version: deleted and moved text
of tracked changes is left out. A note has a mark in the text and follows it at the end; a comment stands at its place in
brackets. Hidden text, drawings and formulas without a text form are left out with a notice.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from seer.rendering.formats.extract import Extract, Notice
from seer.rendering.formats.office.numbering import Numbering
from seer.rendering.formats.office.omml import linear_equation
from seer.rendering.formats.office.package import Element, Package, attribute, child, open_package, tag_of
from seer.rendering.formats.office.runs import RunLook, RunStyles
from seer.rendering.formats.office.symbols import UNKNOWN, in_font, symbol
from seer.rendering.formats.office.tree import check_box, count, cut, ends_text, inside, plain, style_of
from seer.rendering.formats.scripts import lowered, raised

_LEFT_OUT = {
    # Deleted or moved text, properties, field codes, and the fallback copy of content that newer Word versions store twice.
    *("w:del", "w:moveFrom", "w:pPr", "w:rPr", "w:tblPr", "w:trPr", "w:tcPr", "w:sectPr", "w:sdtPr", "w:instrText"),
    *("w:delText", "w:delInstrText", "mc:Fallback", "w:tblGrid"),
}
_MAX_NOTICES = 50
_MAX_COLUMNS = 200


def read_docx(data: bytes, name: str, encoding: str | None) -> Extract:
    """Return the text of a .docx file; `name` appears in error messages. `encoding` is not used: the XML declares its own.

    Raises InputError if the file is damaged or encrypted, unpacks to more than MAX_XML_BYTES, holds a document type,
    or nests its XML too deeply.
    """
    with open_package(data, name) as package:
        return _Reader(package).extract()


@dataclass
class _Text:
    """A piece of text that is being built, and the notices at places in it."""

    parts: list[str] = field(default_factory=list)
    length: int = 0
    notices: list[Notice] = field(default_factory=list)
    script: str = ""
    """"superscript" or "subscript" while runs of one are collected."""
    pending: list[str] = field(default_factory=list)
    boxes: list[_Text] = field(default_factory=list)
    """Text boxes of the current paragraph; they follow it."""

    def write(self, text: str, script: str = "") -> None:
        """Append text; adjacent runs of one script form one super- or subscript."""
        if script != self.script:
            self.end_script()
            self.script = script
        if script:
            self.pending.append(text)
        else:
            self._append(text)

    def end_script(self) -> None:
        """Append the super- or subscript that is being collected."""
        if self.pending:
            text, self.pending = "".join(self.pending), []
            self._append(raised(text) if self.script == "superscript" else lowered(text))
        self.script = ""

    def notice(self, kind: str, message: str) -> None:
        """Add a notice at the current place."""
        self.notices.append(Notice(kind, message, self.length))

    def add(self, other: _Text) -> None:
        """Append another text with its notices."""
        self.end_script()
        other.end_script()
        for one in other.notices:
            self.notices.append(Notice(one.kind, one.message, self.length + (one.offset or 0)))
        self._append("".join(other.parts))

    def _append(self, text: str) -> None:
        self.parts.append(text)
        self.length += len(text)

    def __str__(self) -> str:
        self.end_script()
        return "".join(self.parts)


class _Reader:
    """Reads one document."""

    def __init__(self, package: Package) -> None:
        self._package = package
        self._main = package.main_part()
        styles = self._first("styles")
        self._numbering = Numbering(self._first("numbering"), styles)
        self._run_styles = RunStyles(styles)
        self._style = ""
        """The style of the current paragraph."""
        self._carried: _Text | None = None
        """Text of a paragraph whose end was deleted: it belongs to the next one."""
        self._notes: dict[tuple[str, str], Element] = {}
        for kind, tag in (("footnotes", "w:footnote"), ("endnotes", "w:endnote")):
            root = self._first(kind)
            for note in root if root is not None else ():
                # Separators between text and notes have a type.
                if tag_of(note) == tag and attribute(note, "type") in ("", "normal"):
                    self._notes[tag, attribute(note, "id")] = note
        comments = self._first("comments")
        self._comments = (
            {attribute(one, "id"): one for one in comments if tag_of(one) == "w:comment"}
            if comments is not None
            else {}
        )
        self._marks: dict[tuple[str, str], int] = {}
        """Number of each note that the text has referred to, in order."""

    def extract(self) -> Extract:
        """Return the text of the whole document."""
        out = _Text()
        root = self._package.read(self._main)
        self._margins("header", out)
        if root is not None:
            self._blocks(root, out)
        self._write_notes(out)
        self._margins("footer", out)
        text = str(out)
        last = max(0, len(text) - 1)
        notices = [Notice(one.kind, one.message, min(one.offset or 0, last)) for one in out.notices[:_MAX_NOTICES]]
        if len(out.notices) > _MAX_NOTICES:
            kinds = Counter(one.kind for one in out.notices[_MAX_NOTICES:])
            notices += [Notice(kind, f"{number:,} more such parts of this file") for kind, number in kinds.items()]
        return Extract(text, tuple(notices))

    def _first(self, kind: str) -> Element | None:
        found = self._package.related(self._main, kind)
        return self._package.read(found[0]) if found else None

    def _margins(self, kind: str, out: _Text) -> None:
        """Write every distinct header or footer once."""
        seen = set()
        for part in self._package.related(self._main, kind):
            root = self._package.read(part)
            if root is None:
                continue
            margin = _Text()
            self._blocks(root, margin)
            text = str(margin)
            if text.strip() and text not in seen:
                seen.add(text)
                out.add(margin)

    def _write_notes(self, out: _Text) -> None:
        """Write the notes that the text refers to, in that order, and then those without a reference."""
        # A note may refer to another note, so the list can grow while it is written.
        written = 0
        while written < len(self._marks):
            key = list(self._marks)[written]
            written += 1
            note = _Text()
            self._blocks(self._notes[key], note)
            out.write(f"[{written}] {str(note).strip()}\n")
        for key, element in self._notes.items():
            words = "" if key in self._marks else " ".join(plain(element).split())
            if words:
                out.notice("note", f"a note that the text does not refer to is left out: “{cut(words)}”")

    # ── Blocks ───────────────────────────────────────────────────────────────────────────────────

    def _blocks(self, parent: Element, out: _Text) -> None:
        """Write the paragraphs and tables below an element, in document order."""
        for element in parent:
            tag = tag_of(element)
            if tag == "w:p":
                self._paragraph(element, out)
            elif tag == "w:tbl":
                self._table(element, out)
            elif tag == "w:altChunk":
                out.notice("drawing", "an embedded document is left out")
            elif tag == "m:oMath":
                self._equation(element, out)
            elif tag not in _LEFT_OUT:
                self._blocks(element, out)
        if self._carried is not None and ends_text(parent):
            out.add(self._carried)
            out.write("\n")
            self._carried = None

    def _paragraph(self, element: Element, out: _Text) -> None:
        inner = self._carried or _Text()
        self._carried = None
        outer, self._style = self._style, style_of(element)
        self._runs(element, inner)
        inner.end_script()
        mark = child(element, "w:pPr", "w:rPr")
        is_hidden = not inner.length and self._run_styles.of(mark, self._style).is_hidden
        self._style = outer
        if is_hidden and not inner.boxes:
            out.add(inner)  # its notices; Word neither shows nor numbers the paragraph
            return
        if child(element, "w:pPr", "w:rPr", "w:del") is not None:
            self._carried = inner
            return
        number = self._numbering.number(element)
        if number:
            out.write(f"{number} ")
        boxes, inner.boxes = inner.boxes, []
        out.add(inner)
        out.write("\n")
        for box in boxes:
            out.add(box)

    def _table(self, table: Element, out: _Text) -> None:
        """Write a table: a line for each row; cells separated by tabs, paragraphs within a cell by spaces."""
        for row in inside(table, "w:tr", "w:tbl"):
            if child(row, "w:trPr", "w:del") is not None:
                continue
            before = child(row, "w:trPr", "w:gridBefore")
            cells = [""] * (0 if before is None else min(_MAX_COLUMNS, count(before)))
            line = _Text()
            for cell in inside(row, "w:tc", "w:tr"):
                inner = _Text()
                merged = child(cell, "w:tcPr", "w:vMerge")
                # A cell that continues the one above it is part of that cell.
                if merged is None or attribute(merged, "val") == "restart":
                    self._blocks(cell, inner)
                # A tab separates cells, so those inside of a cell become spaces.
                cells.append(" ".join(str(inner).replace("\t", " ").split("\n")).strip())
                line.notices += [Notice(one.kind, one.message, 0) for one in inner.notices]
                span = child(cell, "w:tcPr", "w:gridSpan")
                # The limit is that of the whole row, so that many wide cells cannot multiply.
                room = max(0, _MAX_COLUMNS - len(cells))
                cells += [""] * (0 if span is None else min(room, count(span) - 1))
            after = child(row, "w:trPr", "w:gridAfter")
            cells += [""] * (0 if after is None else min(max(0, _MAX_COLUMNS - len(cells)), count(after)))
            line.write("\t".join(cells) + "\n")
            out.add(line)

    # ── Text of a paragraph ──────────────────────────────────────────────────────────────────────

    def _runs(self, parent: Element, out: _Text) -> None:
        """Write the text below an element of a paragraph."""
        for element in parent:
            tag = tag_of(element)
            if tag == "w:r":
                self._run(element, out)
            elif tag in ("m:oMath", "m:oMathPara"):
                self._equation(element, out)
            elif tag == "w:p":  # inside a shape that older versions wrote
                self._paragraph(element, out)
            elif tag == "w:t":
                out.write(element.text or "")
            elif tag == "w:commentRangeEnd":
                self._comment(attribute(element, "id"), out)
            elif tag not in _LEFT_OUT:
                self._runs(element, out)

    def _run(self, run: Element, out: _Text) -> None:
        look = self._run_styles.of(child(run, "w:rPr"), self._style)
        if look.is_hidden:
            words = " ".join(plain(run).split())
            if words:
                out.notice("hidden-text", f"hidden text is left out: “{cut(words)}”")
            return
        self._content(run, out, look)

    def _content(self, run: Element, out: _Text, look: RunLook) -> None:
        """Write the content of a run."""
        for element in run:
            tag = tag_of(element)
            if tag == "w:t":
                text = in_font(element.text or "", look.font)
                if text.count(UNKNOWN) > (element.text or "").count(UNKNOWN):
                    out.notice("symbol", f"a symbol of the font {look.font[:40]} has no known character")
                out.write(text, look.script)
            elif tag == "w:fldChar":
                out.write(check_box(element))
            elif tag == "w:ruby":
                self._ruby(element, out)
            elif tag in ("w:tab", "w:ptab"):
                out.write("\t")
            elif tag in ("w:br", "w:cr"):
                out.write("\n")
            elif tag == "w:noBreakHyphen":
                out.write("\u2011")
            elif tag == "w:sym":
                self._symbol(element, out)
            elif tag in ("w:footnoteReference", "w:endnoteReference"):
                self._note_mark(tag.removesuffix("Reference"), attribute(element, "id"), out)
            elif tag == "w:commentReference":
                self._comment(attribute(element, "id"), out)
            elif tag in ("w:drawing", "w:pict", "w:object"):
                self._drawing(element, out)
            elif tag in ("mc:AlternateContent", "mc:Choice"):
                self._content(element, out, look)
            elif tag not in _LEFT_OUT:
                self._runs(element, out)

    def _ruby(self, element: Element, out: _Text) -> None:
        """Write a word, and in brackets the reading that stands above it."""
        base, reading = child(element, "w:rubyBase"), child(element, "w:rt")
        if base is not None:
            self._runs(base, out)
        words = "" if reading is None else plain(reading).strip()
        if words:
            out.write(f"({words})")

    def _symbol(self, element: Element, out: _Text) -> None:
        font, code = attribute(element, "font"), attribute(element, "char")
        try:
            found = symbol(font, int(code, 16))
        except ValueError:
            found = None
        if found is None:
            out.notice("symbol", f"a symbol has no known character: code {code[:8]} of the font {font[:40]}")
        out.write(found or UNKNOWN)

    def _note_mark(self, kind: str, identity: str, out: _Text) -> None:
        key = (kind, identity)
        if key in self._notes:
            out.write(f"[{self._marks.setdefault(key, len(self._marks) + 1)}]")

    def _comment(self, identity: str, out: _Text) -> None:
        # Each comment is written once, and one that refers to itself ends.
        comment = self._comments.pop(identity, None)
        if comment is not None:
            inner = _Text()
            self._blocks(comment, inner)
            author = attribute(comment, "author")
            out.write(f" [comment{f' by {author}' if author else ''}: {' '.join(str(inner).split())}]")

    def _equation(self, element: Element, out: _Text) -> None:
        formula = " ".join(linear_equation(element).split())
        if formula:
            out.write(formula)
        else:
            out.notice("formula", "a formula has no text and is left out")

    def _drawing(self, element: Element, out: _Text) -> None:
        """Write a text box after its paragraph; of a picture, write the description that its author gave."""
        boxes = list(inside(element, "w:txbxContent", "mc:Fallback"))
        for box in boxes:
            inner = _Text()
            self._blocks(box, inner)
            out.boxes.append(inner)
        if boxes:
            return
        described = next(inside(element, "wp:docPr", "mc:Fallback"), None)
        alternative = "" if described is None else " ".join(attribute(described, "descr").split())
        if alternative:
            out.write(f"[picture: {alternative}]")
        what = "an embedded object" if tag_of(element) == "w:object" else "a picture"
        out.notice(
            "drawing", f"{what} is left out" + (f"; its description is “{alternative[:60]}”" if alternative else "")
        )
