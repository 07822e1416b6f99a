"""Choose between newline marks and line breaks for one document, for styles with `newline="auto"`.

    decision = decide_newline(text, resolve_style("paper"))
    decision.newline, decision.reason       # "mark", "92% of the text is in lines shorter than the page"
    style = settle_newline(text, resolve_style("paper"))    # the same style with newline="mark"

Hard-wrapped prose, chats, verse and lists leave the right side of a page blank, and blank space costs as many tokens as
text. With marks their lines run on and fill the page. Code and tables lose their structure without line breaks, and
prose with one long line for each paragraph gains little from marks.

The rule applies to lines with visible text, in this order:

1. If more than MAX_STRUCTURED of the lines are code or rows of tables, or the text is one mapping of names to values,
   newlines break lines.
2. If at least MIN_SHORT of the characters are in lines narrower than a column of the page, newlines become marks.
3. If at least MIN_WRAPPED of the lines inside paragraphs are wrapped at one width, newlines become marks.
4. Otherwise newlines break lines.

The decision is a pure function of the text and of the style's fonts, font size and column width. It reads the whole
text, or evenly spaced windows of SAMPLE_CHARS characters in total if the text is longer.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seer.rendering.layout.fonts import load_chain
from seer.rendering.layout.measure import Measure, code_points, newline_ends
from seer.rendering.styles import with_newline
from seer.schema import NewlineMode, PageStyle

MAX_STRUCTURED = 0.1
"""Largest fraction of code and table lines in a document whose newlines may become marks."""
MIN_SHORT = 0.5
"""Smallest fraction of characters in lines narrower than the column."""
MIN_WRAPPED = 0.8
"""Smallest fraction of lines inside paragraphs that end where the next word would pass the wrap width."""
SAMPLE_CHARS = 1 << 18
_WINDOWS = 4
_WRAP_CHARS = (40, 200)
"""Smallest and largest wrap width that step 3 looks for."""
_FIRST_CJK = 0x2E80
_MIN_INNER_LINES = 8
"""Lines inside paragraphs that step 3 requires."""
_HEAD_CHARS, _TAIL_CHARS = 300, 100
"""Only the two ends of a longer line are matched, which bounds the time of the patterns."""

_CODE_START = re.compile(
    r"""\s*(?:
    # comments, directives, decorators, hunks of a patch
      (?://|/\*|\*/|\#!|<\?|@@\s|\#\s*(?:include|define|ifn?def|endif|pragma)\b|@\w+(?:\(.*\))?$)
    # definitions, imports, forms of Lisp, calls that fill a line
    | (?:async\s+)?(?:def|class|func|fn|function|interface|struct|enum)\s+\w+.*[:{(,]$
    | (?:import|package|using)\s+[\w.*]+\s*;?$ | from\s+[\w.]+\s+import\b
    | \((?:def\w*|let\*?|if|cond|lambda)\s | \w+\(.*\)$
    # assignments
    | \#?\s*(?:(?:export|local|const|let|var|val|final|set)\s+)?[\w.\[\]'"]+(?:\s*:\s*[\w.\[\]]+)?\s*[-+*/|&%]?=\s*[^\s=]
    # brackets that close a block, elements of XML, keys of JSON, list items and indented keys of YAML
    | [)\]}]+[,;]?$ | <[\w:-]+[^>]*>.*</[\w:-]{2,}>$ | ["'][^"']*["']\s*:\s*\S
    | (?:(?<=\s)|(?:-\s+))[a-z_$][\w.$/-]*:(?:\s+\S|$)
    )""",
    re.VERBOSE,
)
"""Matches from the start of a line of program code, in the syntax that common languages share."""
_CODE_INSIDE = re.compile(
    r"""[)\]}]\s*;$|\{$|;\s*\}$|/\s*>$|==|!=|\+=|[<>]=|&&|->|=>|\w::\w|\w\(\)|\w\.\w+\([^)\s]*[,)=("']"""
)
"""Matches the end of a statement or block, operators, and calls without a space before the bracket."""
_LIKE_CODE = re.compile(
    r"""
      \#|\[[\w .:/-]+\]$ | [a-z_$][\w.$/-]*:(?:\s+\S|$)
    | \s*(?:end|fi|done|esac|then|else|begin)$
    | \s*(?:if|elif|for|while|with|except|try|else|finally|switch|case)\b[^.?!]*:$
    | \s*(?:return|raise|yield|assert|del)\s+[\w.]+[\[(]
    | .*[\w"'>]\s*;$
    """,
    re.VERBOSE,
)
"""Matches lines that occur in code, but in verse and prose too: "and carries leaves to sea;"."""
_MIN_CODE_PER_LIKE = 0.25
"""Lines that are certainly code or tables, for each line of `_LIKE_CODE`, from which the latter count too."""
_CODE_OF_WORDS = re.compile(
    r"""(?:
    # Fortran: declarations, blocks, calls, input and output, labels
      \s*implicit\s+none$ | \s*(?:integer|real|logical|complex|character|double\s+precision|type)\b[^.?!]*\s::\s
    | \ {6,}(?:integer|real|logical|complex|character|double\s+precision)\s+\w+(?:\(.*\))?(?:\s*,\s*\w+(?:\(.*\))?)*$
    | \s*(?:\w+\s+)?subroutine\s+\w+(?:\s*\(.*\))?$ | \s*call\s+\w+\(
    | \s*end\s*(?:do|if|program|subroutine|function|module|select|interface|type|where)\b(?:\s+\w+)?$
    | \s*do\s+(?:\d+\s+)?\w+\s*=  | \s*(?:else\s*)?if\s*\(.*\)\s*(?:then|go\s*to\b.*)$
    | \s*(?:write|read)\s*\(\s*(?:\*\s*[,)]|\d+\s*,) | \s*print\s*\* | \s*\d+\s+(?:continue$|format\s*\()
    | \ {6,}(?:return|stop|end)$
    # BASIC with line numbers
    | (?-i:\d{2,5}\s+(?:REM|PRINT|INPUT|IF|LET|GOTO|GOSUB|FOR|NEXT|DIM|END|RETURN|DATA|READ)\b)
    # documentation and modules of Perl
    | =(?:head[1-4]|cut|pod|over|item|back|encoding)\b | (?:use|no)\s+(?:strict|warnings|v?5[\d.]*|\w+::[\w:]+)\b.*;$
    | \s*(?:my|our|local)\s*\(?\s*[$@%]
    )""",
    re.VERBOSE | re.IGNORECASE,
)
"""Matches from the start of a line of languages whose statements are words, in upper or lower case."""
_CODE_OF_WORDS_INSIDE = re.compile(
    r"\.(?:lt|gt|le|ge|eq|ne|and|or|not|true|false)\.|\s::\s|\$[a-z_]\w+(?:[;\[]|->|\s*=~)", re.I
)
"""Matches operators of Fortran, types of Haskell and scalars of Perl, but neither "$5" nor the formula "$x_1$"."""
_SQL_START = re.compile(
    r"""\s*(?:
      select\s+(?:distinct\s+)?(?:\*|[\w.]+\s*,\s*[\w.]+|\w+[._]\w+)(?:\s*,\s*[\w.]+)*,?$
    | (?-i:SELECT\s+[a-z_.]+$) | select\s+\*\s
    | select\s.*(?:\sfrom\s+[\w.]+(?:;?$|\s+(?:where|join|group|order|limit)\b)|\w\(|\sas\s+\w+,?$)
    | (?:group|order|partition)\s+by\s+[\w.]+(?:\s+(?:asc|desc))?(?:\s*,\s*[\w.]+(?:\s+(?:asc|desc))?)*;?$
    | (?:(?:left|right|full)\s+(?:outer\s+)?|inner\s+|cross\s+)join\s+[\w.(]
    | insert\s+into\s+[\w."`]+\s*(?:\(|values|select|$) | delete\s+from\s+[\w.]+(?:;?$|\s+where) | update\s+[\w.]+\s+set\b
    | create\s+(?:or\s+replace\s+)?(?:temp(?:orary)?\s+|unique\s+)?(?:table|view|index)\s+[\w."`]+(?:\s*\(|\s+(?:as|on)\b|$)
    | (?:alter|drop)\s+(?:table|view|index)\s+[\w."`]+ | having\s+\w+\( | values\s*\(['"\d?:]
    )""",
    re.VERBOSE | re.IGNORECASE,
)
"""Matches from the start of a line of SQL that cannot be prose."""
_LIKE_SQL = re.compile(r"\s*(?:select|from|where|and|or|on|using|limit|set|union|join)\b[^.?!]*(?:\.\w[^.?!]*)*$", re.I)
"""Matches clauses of SQL that occur in verse and prose too: "from the river to the sea"."""
_KEY_LINE = re.compile(r"\s*(?:-\s+)?([A-Za-z_$][\w.$/-]*):(?:\s+(\S.*))?$")
"""A line of a flat mapping such as YAML, and also of a chat or of the head of a mail."""
_MIN_KEY_LINES, _MIN_KEYED, _MIN_DISTINCT, _MIN_SCALAR = 4, 0.6, 0.8, 0.5
"""What makes such lines a mapping: their number, their fraction of all lines that are not comments, the fraction of
different keys, and the fraction of values of at most one word. In a chat, the names repeat and the values are sentences;
the head of a mail is a small part of the mail."""
_ROW_START = re.compile(
    r"""\s*(?:
      \|.*\|$                                                 # Markdown
    | [+|:]?[-=+|:]{3,}[-=+|:\s]*$                            # rules
    | [-+]?\d[\dxXa-fA-F.]*(?:[\s,;:]+[-+]?\d[\dxXa-fA-F.]*)+$  # numbers
    )""",
    re.VERBOSE,
)
"""Matches from the start of a row of a table."""
_ROW_INSIDE = re.compile(r"[^\s>]\t+\S|\w +\| +\S.* \| +\S|[^\s>.?!:] {3,}\S.*\S {3,}\S")
"""Matches cells that are separated by tabs, by bars, or by runs of spaces."""
_SEPARATOR = re.compile(r"[,;](?=\S)")
"""Separates the values of a line of comma-separated values."""


@dataclass(frozen=True)
class NewlineDecision:
    """The newline mode of a document and the measures it is based on, each a fraction from 0 to 1."""

    newline: NewlineMode
    structured: float
    """Lines that are code or rows of tables."""
    short: float
    """Characters in lines narrower than the column."""
    wrapped: float
    """Lines inside paragraphs that are wrapped at one width."""

    @property
    def reason(self) -> str:
        """The measure that decides, in words."""
        if self.structured > MAX_STRUCTURED:
            return f"{self.structured:.0%} of the lines are code or tables"
        if self.short >= MIN_SHORT or self.newline == "break":
            return f"{self.short:.0%} of the text is in lines shorter than the page"
        return f"{self.wrapped:.0%} of the lines inside paragraphs are wrapped at one width"


def decide_newline(text: str, style: PageStyle) -> NewlineDecision:
    """Decide whether newlines of `text` break lines or become marks on pages of `style`, by the rule of this module.

    Raises InputError or DocumentNotFound if a font of the style cannot be opened.
    """
    text = _sample(text)
    measure = Measure(style, load_chain(style.fonts))
    codes = code_points(text)
    ends = np.flatnonzero(newline_ends(codes)) + 1
    starts = np.concatenate([[0], ends])
    # Kerning and shaping are ignored: the comparison with the column needs the width of a line, not of each glyph.
    total_sub = np.concatenate([[0], np.cumsum(measure.advances_sub.take(measure.chain.entries(codes)))])
    widths_sub = np.diff(total_sub[np.append(starts, len(codes))])
    lines = [text[start:end].rstrip() for start, end in zip(starts, [*ends, len(text)], strict=True)]
    visible = [index for index, line in enumerate(lines) if line]
    if not visible:
        return NewlineDecision("break", 0.0, 0.0, 0.0)
    sizes = np.array([len(lines[index].lstrip()) for index in visible])
    structured = _structured([lines[index] for index in visible])
    short = float(sizes[widths_sub[visible] < measure.limit_sub].sum() / sizes.sum())
    wrapped = _wrapped(lines)
    marked = structured <= MAX_STRUCTURED and (short >= MIN_SHORT or wrapped >= MIN_WRAPPED)
    return NewlineDecision("mark" if marked else "break", structured, short, wrapped)


def settle_newline(text: str, style: PageStyle) -> PageStyle:
    """Return `style` with the newline mode that suits `text` if its mode is "auto", else `style` itself.

    Raises InputError or DocumentNotFound if a font of the style cannot be opened.
    """
    if style.newline != "auto":
        return style
    return with_newline(style, decide_newline(text, style).newline)


def _structured(lines: Sequence[str]) -> float:
    """Return the fraction of the lines, stripped on the right, that are code or rows of tables."""
    if lines[0].startswith(("#!", "<?")):
        return 1.0  # a script or XML, however many comments it has
    if _is_mapping(lines):
        return 1.0
    certain = likely = sql = like_sql = 0
    fenced, commas_before = False, 0
    for line in lines:
        if len(line) > _HEAD_CHARS + _TAIL_CHARS:
            line = line[:_HEAD_CHARS] + line[-_TAIL_CHARS:]
        fence = line.lstrip().startswith(("```", "~~~"))
        fenced ^= fence
        # Prose has commas too, but seldom equally many in consecutive lines, all without a space after them.
        commas = len(_SEPARATOR.findall(line)) if ", " not in line else 0
        if (
            fenced
            or fence
            or (commas >= 2 and commas == commas_before)
            or _CODE_START.match(line)
            or _CODE_INSIDE.search(line)
            or _ROW_START.match(line)
            or _ROW_INSIDE.search(line)
            or _CODE_OF_WORDS.match(line)
            or _CODE_OF_WORDS_INSIDE.search(line)
        ):
            certain += 1
        elif _SQL_START.match(line):
            sql += 1
        elif _LIKE_CODE.match(line):
            likely += 1
        elif _LIKE_SQL.match(line):
            like_sql += 1
        commas_before = commas
    # Clauses count beside statements of SQL only: verse with a few lines of other code has "and" and "from" too.
    sql += like_sql if sql and sql >= _MIN_CODE_PER_LIKE * like_sql else 0
    certain += sql
    return (certain + (likely if certain >= _MIN_CODE_PER_LIKE * likely else 0)) / len(lines)


def _is_mapping(lines: Sequence[str]) -> bool:
    """Return whether the lines are a flat mapping of names to values, as in YAML."""
    # Documents of one YAML file are separated by "---" and repeat their keys.
    document, size = 0, 0
    found: list[tuple[int, str, str]] = []
    for line in lines:
        document += line.startswith("---")
        if line.lstrip().startswith(("#", "---", "...")):
            continue
        size += 1
        if len(line) <= _HEAD_CHARS and (match := _KEY_LINE.match(line)):
            found.append((document, match[1], match[2] or ""))
    if len(found) < max(_MIN_KEY_LINES, _MIN_KEYED * size):
        return False
    keys = {(document, key) for document, key, _ in found}
    scalars = sum(len(value.split()) <= 1 for _, _, value in found)
    return len(keys) >= _MIN_DISTINCT * len(found) and scalars >= _MIN_SCALAR * len(found)


def _wrapped(lines: Sequence[str]) -> float:
    """Return the fraction of lines inside paragraphs that are wrapped at one width, in characters; 0 if there is none.

    A line is inside a paragraph if another line with text follows it at once. It is wrapped at a width if it fits, and
    would not with the first word of the next line.
    """
    inner = [(line, after) for line, after in itertools.pairwise(lines) if line and after]
    if len(inner) < _MIN_INNER_LINES:
        return 0.0
    sizes = np.array([len(line) for line, _ in inner])
    # The largest lengths are left out as outliers, such as web addresses that exceed the width.
    width = int(np.quantile(sizes, 0.98))
    if not _WRAP_CHARS[0] <= width <= _WRAP_CHARS[1]:
        return 0.0
    # CJK text breaks before any character, so its first word is one character.
    words = np.array(
        [1 if ord(word[0]) >= _FIRST_CJK else len(word) for _, after in inner for word in after.split()[:1]]
    )
    return float(np.mean((sizes <= width) & (sizes + 1 + words > width)))


def _sample(text: str) -> str:
    """Return a text of up to SAMPLE_CHARS characters whole, and of a longer one evenly spaced windows."""
    if len(text) <= SAMPLE_CHARS:
        return text
    step, size = len(text) // _WINDOWS, SAMPLE_CHARS // _WINDOWS
    # A newline between the windows keeps the end of one from joining the start of the next.
    return "\n".join(text[k * step : k * step + size] for k in range(_WINDOWS))
