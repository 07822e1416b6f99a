"""The records that everything else speaks: frozen, validated at construction, unknown keys refused.

Spans are half-open [start, end) and count Unicode code points of the source text. Pages are numbered
from 1 wherever a person or a model sees them. Sizes carry their unit in the name: `_px`, `_pt`.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator

if TYPE_CHECKING:
    import numpy as np


class Record(BaseModel):
    """A frozen record that refuses unknown keys and names the nearest known one."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    @model_validator(mode="before")
    @classmethod
    def _name_unknown_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            known = cls.__pydantic_fields__  # as model_fields, without its cost on every record
            for key in data:
                if key not in known:
                    near = difflib.get_close_matches(str(key), known, n=1)
                    hint = f"did you mean '{near[0]}'?" if near else f"known keys: {', '.join(known)}"
                    raise ValueError(f"unknown key '{key}' in {cls.__name__}; {hint}")
        return data


# ── Pages and documents ──────────────────────────────────────────────────────────────────────────


class PageStyle(Record):
    """How text becomes a page. Two styles with the same `digest` draw the same pixels."""

    name: str = "custom"
    page_width_px: int = Field(595, ge=28, le=8192)
    page_height_px: int = Field(842, ge=28, le=8192)
    dpi: int = Field(72, ge=36, le=600)
    """Pixels per inch: a size in points becomes size · dpi / 72 pixels."""
    margin_x_px: int = Field(20, ge=0)
    margin_y_px: int = Field(20, ge=0)
    fonts: tuple[str, ...] = ("DejaVuSans", "DroidSansFallback")
    """The font chain: names of carried fonts or paths of font files; the first that has a glyph draws it."""
    font_size_pt: float = Field(9.0, ge=3, le=96)
    line_height_pt: float = Field(10.0, ge=3, le=192)
    tab_columns: int = Field(4, ge=1, le=16)
    """A tab advances to the next multiple of this many spaces."""
    newline: Literal["break", "mark"] = "break"
    """`break`: a newline ends the line. `mark`: lines run on and a small mark shows where the source breaks."""
    breaking: Literal["unicode", "spaces"] = "unicode"
    """`unicode`: lines may break wherever Unicode allows it. `spaces`: after white space and beside CJK only."""
    columns: int = Field(1, ge=1, le=8)
    column_gap_px: int = Field(12, ge=0)
    crop_width: bool = False
    """Cut the unused right side of each page."""
    crop_last_page: bool = True
    """Cut the unused bottom of the last page."""
    snap_px: int = Field(28, ge=1, le=112)
    """Crops land on multiples of this, so that no partial row of patches is paid for."""

    @model_validator(mode="after")
    def _text_area_is_positive(self) -> PageStyle:
        if self.text_width_px < 8 or self.text_height_px < self.line_height_px:
            raise ValueError(
                f"page {self.page_width_px}x{self.page_height_px} px with margins {self.margin_x_px}/{self.margin_y_px} px "
                f"and {self.columns} column(s) leaves {self.text_width_px:.0f}x{self.text_height_px:.0f} px for text, "
                f"less than one line of {self.line_height_px:.1f} px; make the page larger or the margins smaller"
            )
        return self

    @property
    def font_size_px(self) -> float:
        return self.font_size_pt * self.dpi / 72

    @property
    def line_height_px(self) -> float:
        return self.line_height_pt * self.dpi / 72

    @property
    def text_width_px(self) -> float:
        """Width of one column."""
        return (self.page_width_px - 2 * self.margin_x_px - (self.columns - 1) * self.column_gap_px) / self.columns

    @property
    def text_height_px(self) -> float:
        return self.page_height_px - 2 * self.margin_y_px

    @property
    def digest(self) -> str:
        """Twelve hex digits over every field but the name."""
        return hashlib.sha256(self.model_dump_json(exclude={"name"}).encode()).hexdigest()[:12]


class LineBox(Record):
    """Where one line of text stands on its page."""

    start: int
    end: int
    x_px: float
    y_px: float
    width_px: float
    height_px: float


class Page(Record):
    """One page: a picture for the eye and the exact source text for the record."""

    number: int = Field(ge=1)
    label: str | None = None
    """The page number as printed in the source, where there is one."""
    source: str = ""
    """The file this page comes from, where a document joins several."""
    source_number: int | None = None
    """Its number there."""
    start: int = Field(ge=0)
    end: int = Field(ge=0)
    text: str
    width_px: int = Field(ge=1)
    height_px: int = Field(ge=1)
    content_hash: str
    """Identifies the picture: equal hashes mean equal pixels. Known before the picture is drawn."""

    _draw: Callable[[Page], np.ndarray] | None = PrivateAttr(None)
    _lines: Callable[[Page], Sequence[LineBox]] | None = PrivateAttr(None)
    _encode: Callable[[Page], bytes] | None = PrivateAttr(None)

    def attach(
        self,
        draw: Callable[[Page], np.ndarray],
        lines: Callable[[Page], Sequence[LineBox]] | None = None,
        encode: Callable[[Page], bytes] | None = None,
    ) -> Page:
        """Give this page the functions that draw it, find its lines and make a PNG of it; returns the page."""
        self._draw, self._lines, self._encode = draw, lines, encode
        return self

    def image(self) -> np.ndarray:
        """Draw the page: uint8 of shape (height_px, width_px), 0 black to 255 white, or (height_px, width_px, 3)."""
        if self._draw is None:
            raise ValueError(f"page {self.number} was loaded without the means to draw it; render its document again")
        return self._draw(self)

    def png(self) -> bytes:
        """The page as PNG: the same picture as `image()`."""
        if self._encode is None:
            raise ValueError(f"page {self.number} was loaded without the means to encode it; render its document again")
        return self._encode(self)

    def moved(self, offset: int, **changes: Any) -> Page:
        """The same page in a text where it stands `offset` characters later, with other fields changed too."""

        def lines(_: Page) -> list[LineBox]:
            return [
                box.model_copy(update={"start": box.start + offset, "end": box.end + offset})
                for box in self.line_boxes()
            ]

        place = {"start": self.start + offset, "end": self.end + offset}
        page = self.model_copy(update=place | changes)
        return page.attach(lambda _: self.image(), lines, lambda _: self.png())

    def line_boxes(self) -> Sequence[LineBox]:
        """Source span and box of every line on the page, top to bottom; empty where they are not known."""
        return () if self._lines is None else self._lines(self)


class MissingGlyph(Record):
    """A character that no font of the chain covers; it is drawn as a box with its code point."""

    character: str
    code_point: str
    count: int
    offsets: tuple[int, ...]
    """The first places where it stands in the source text (at most 20)."""


class Document(Record):
    """A source text and its pages. The page texts joined in order equal the source text."""

    name: str
    text: str
    style: PageStyle
    pages: tuple[Page, ...]
    missing_glyphs: tuple[MissingGlyph, ...] = ()

    @model_validator(mode="after")
    def _pages_join_to_the_text(self) -> Document:
        end = 0
        for number, page in enumerate(self.pages, 1):
            assert page.number == number and page.start == end and page.end - page.start == len(page.text), (
                f"page {page.number} covers [{page.start}, {page.end}) with {len(page.text)} characters after {end}"
            )
            end = page.end
        assert end == len(self.text), f"pages end at {end}, text has {len(self.text)} characters"
        return self

    def page(self, number: int) -> Page:
        """The page with this 1-based number."""
        if not 1 <= number <= len(self.pages):
            raise ValueError(f"page {number} asked of '{self.name}', which has pages 1 to {len(self.pages)}")
        return self.pages[number - 1]

    def page_at(self, offset: int) -> Page:
        """The page that holds the source character at `offset`."""
        if not 0 <= offset < max(1, len(self.text)):
            raise ValueError(f"offset {offset} lies outside the text of {len(self.text)} characters")
        low, high = 0, len(self.pages) - 1
        while low < high:
            middle = (low + high) // 2
            if self.pages[middle].end > offset:
                high = middle
            else:
                low = middle + 1
        return self.pages[low]

    def __iter__(self) -> Iterator[Page]:  # type: ignore[override]
        return iter(self.pages)


# ── Conversations ────────────────────────────────────────────────────────────────────────────────


class LossClass(StrEnum):
    """What a token is, for the loss. The paper's classes, with its format tags and our stop apart."""

    PROMPT = "prompt"
    """Given to the model: role markers, pages, question."""
    CALL = "call"
    """Inside the tool call: the words that name the tool and the selected pages."""
    STRUCTURE = "structure"
    """The format tags that the model writes: <tool_call>, </tool_call>, <think>, </think>."""
    OBSERVATION = "observation"
    """Given to the model after its call: the retrieved text."""
    THINK = "think"
    ANSWER = "answer"
    STOP = "stop"
    """The role marker that ends the model's turn."""


class Excerpt(Record):
    """Exact source text of a page, or of some of its lines, given to the model as text."""

    page: int = Field(ge=0)
    """1-based; 0 stands for the whole document."""
    start: int = Field(ge=0)
    text: str

    @property
    def end(self) -> int:
        return self.start + len(self.text)


class Turn(Record):
    """One step of a conversation.

    | kind        | who speaks | what it holds                                                      |
    |-------------|------------|--------------------------------------------------------------------|
    | prompt      | user       | `pages` shown as pictures, `excerpts` shown as text, `text`: question |
    | call        | model      | `pages` that it selects                                            |
    | observation | tool       | `excerpts`, or `text` in their place (the paper's A.4)             |
    | think       | model      | `text`                                                             |
    | answer      | model      | `text`; the turn ends with the stop token                          |
    """

    kind: Literal["prompt", "call", "observation", "think", "answer"]
    text: str = ""
    pages: tuple[int, ...] = ()
    excerpts: tuple[Excerpt, ...] = ()
    chat: bool = True
    """False, for a prompt without pictures: the model goes on with the text as it stands, outside any chat template."""


class Trajectory(Record):
    """A whole conversation to learn from. `turns` are what the encoder reads; the rest says where they came from."""

    id: str
    source: str
    """The document's text; its pages are drawn from it with `style`."""
    style: PageStyle
    turns: tuple[Turn, ...]
    relevant_pages: tuple[int, ...] = ()
    answers: tuple[str, ...] = ()
    provenance: dict[str, str] = {}

    @property
    def question(self) -> str:
        return self.turns[0].text


# ── Answers ──────────────────────────────────────────────────────────────────────────────────────


class Status(StrEnum):
    ANSWERED = "answered"
    NOT_ANSWERABLE = "not_answerable"
    FAILED = "failed"


class Citation(Record):
    """A place in the document that supports the answer."""

    page: int
    label: str | None = None
    start: int
    end: int
    quote: str
    verified: bool
    """True where the quote stands in the retrieved text at [start, end)."""


class Usage(Record):
    """Tokens. `prompt` is what the model saw in the last stage: text, vision and retrieved tokens together."""

    vision: int = 0
    retrieved: int = 0
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    """Prompt tokens that a key-value cache supplied."""
    full_text: int = 0
    """What the prompt would have held with the whole document as text."""

    @property
    def compression(self) -> float:
        """Full-text prompt over actual prompt; above 1 means saved."""
        return self.full_text / self.prompt if self.prompt else 0.0


class Step(Record):
    """One turn of the trace: what was said, and what it cost."""

    turn: Turn
    raw: str = ""
    """The model's own output, unparsed; empty for turns that the model did not write."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    seconds: float = 0.0
    finish: str = ""
    deviations: tuple[str, ...] = ()
    """How the output departed from the protocol, by name."""


Fault = Literal["", "engine", "request"]


class Answer(Record):
    text: str
    status: Status
    cause: str = ""
    """Why, where the status is `failed`."""
    fault: Fault = ""
    """Where it failed without the model's doing: `engine`, and asking again may help; `request`, too long to be served."""
    selected_pages: tuple[int, ...] = ()
    citations: tuple[Citation, ...] = ()
    usage: Usage = Usage()
    trace: tuple[Step, ...] = ()
    seconds: float = 0.0


class Prediction(Record):
    """One for every input of an evaluation, failures included."""

    id: str
    task: str
    pred: str
    answers: tuple[str, ...]
    all_classes: tuple[str, ...] | None = None
    length: int | None = None
    status: Status
    cause: str = ""
    pages: int = 0
    selected_pages: tuple[int, ...] = ()
    usage: Usage = Usage()
    seconds: float = 0.0
    system: str = "seer"
    trace: tuple[Step, ...] = ()
