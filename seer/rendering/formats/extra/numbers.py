"""Numbers and dates as a spreadsheet shows them.

>>> shown(0.256, "0.0%"), shown(1234.5, "#,##0.00"), shown(-3, "0;(0)"), shown(0.1 + 0.2, "General")
('25.6%', '1,234.50', '(3)', '0.3')
"""

from __future__ import annotations

import datetime
import re
from typing import Any

_SECTION = re.compile(r'(?:"[^"]*"|\\.|\[[^\]]*\]|[^;"\\\[])*')
_CURRENCY = re.compile(r"\[\$([^\]-]*)(?:-[^\]]*)?\]")
_PLACES = re.compile(r"[#0?][#0?,]*(?:\.[#0?]*)?,*|\.[#0?]+,*")
_DATE = re.compile(
    r"AM/PM|A/P|y+|m+|d+|h+|s+(?:\.0+)?|\[h+\]|\[m+\]|\[s+\]|\"[^\"]*\"|\\.|.", re.IGNORECASE | re.DOTALL
)


def shown(value: Any, form: str) -> str:
    """Return a value in a number format; formats that are not understood give the plain value."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, datetime.datetime | datetime.date | datetime.time | datetime.timedelta):
        return _date(value, form)
    if isinstance(value, int | float):
        return _number(value, form or "General")
    return str(value)


def _plain(value: float) -> str:
    if isinstance(value, int) or (value.is_integer() and abs(value) < 1e15):
        return str(int(value))
    return f"{value:.10g}"


def _number(value: float, form: str) -> str:
    sections = [section for section in _SECTION.findall(form) if section] or ["General"]
    negative = value < 0 and len(sections) > 1
    section = sections[1] if negative else sections[2] if value == 0 and len(sections) > 2 else sections[0]
    if section.strip().lower() in ("general", "@", "") or "e+" in section.lower() or "/" in section:
        return _plain(value)
    section = _CURRENCY.sub(lambda found: found[1].replace("0", "\\0"), section)
    section = re.sub(r"\[[^\]]*\]", "", section)
    section = re.sub(r"_.|\*.", "", section)
    places = _PLACES.search(re.sub(r'"[^"]*"|\\.', lambda found: "\0" * len(found[0]), section))
    if places is None:
        return _literal(section)
    digits = places[0]
    amount = abs(value) if negative or value < 0 else value
    if "%" in section:
        amount *= 100
    scale = len(digits) - len(digits.rstrip(","))
    amount /= 1000**scale
    digits = digits.rstrip(",")
    decimals = len(digits.partition(".")[2])
    grouped = "," in digits.partition(".")[0]
    text = f"{amount:{',' if grouped else ''}.{decimals}f}"
    optional = len(digits.partition(".")[2]) - len(digits.partition(".")[2].rstrip("#?"))
    if optional and "." in text:
        kept = text[: len(text) - optional] + text[len(text) - optional :].rstrip("0")
        text = kept.rstrip(".")
    least = sum(character == "0" for character in digits.partition(".")[0])
    whole, dot, rest = text.partition(".")
    if not grouped and len(whole) < least:
        text = whole.zfill(least) + dot + rest
    sign = "-" if value < 0 and not negative and any(character in "123456789" for character in text) else ""
    return sign + _literal(section[: places.start()]) + text + _literal(section[places.end() :])


def _literal(text: str) -> str:
    return re.sub(r'"([^"]*)"|\\(.)', lambda found: found[1] or found[2] or "", text)


def _date(value: Any, form: str) -> str:
    """Return a date or a time in a date format; without one, in ISO form."""
    if isinstance(value, datetime.timedelta):
        seconds = int(value.total_seconds())
        return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    tokens = _DATE.findall(re.sub(r"\[\$[^\]]*\]", "", form.partition(";")[0]))
    kinds = [token[0].lower() for token in tokens]
    if form.strip().lower() in ("", "general", "@") or not set(kinds) & set("ymdhs"):
        return value.isoformat(sep=" ") if isinstance(value, datetime.datetime) else value.isoformat()
    half = any(token.upper() in ("AM/PM", "A/P") for token in tokens)
    date = value if isinstance(value, datetime.date) else datetime.date(1900, 1, 1)
    time = value if isinstance(value, datetime.datetime | datetime.time) else datetime.time()
    out = []
    for place, token in enumerate(tokens):
        low = token.lower()
        if token.upper() in ("AM/PM", "A/P"):
            out.append("AM" if time.hour < 12 else "PM")
        elif low[0] == "y":
            out.append(f"{date.year % 100:02d}" if len(low) <= 2 else f"{date.year:04d}")
        elif low[0] == "m":
            before = next((kinds[k] for k in range(place - 1, -1, -1) if kinds[k] in "ymdhs"), "")
            after = next((kinds[k] for k in range(place + 1, len(kinds)) if kinds[k] in "ymdhs"), "")
            if len(low) <= 2 and (before == "h" or after == "s"):
                out.append(f"{time.minute:0{len(low)}d}")
            else:
                out.append(
                    {1: str(date.month), 2: f"{date.month:02d}", 3: date.strftime("%b")}.get(
                        len(low), date.strftime("%B")
                    )
                )
        elif low[0] == "d":
            out.append(
                {1: str(date.day), 2: f"{date.day:02d}", 3: date.strftime("%a")}.get(len(low), date.strftime("%A"))
            )
        elif low[0] == "h":
            hour = (time.hour % 12 or 12) if half else time.hour
            out.append(f"{hour:0{min(2, len(low))}d}")
        elif low[0] == "s":
            out.append(f"{time.second:0{min(2, len(low.partition('.')[0]))}d}")
        elif token.startswith(("[", "_")):
            continue
        else:
            out.append(_literal(token))
    return "".join(out).strip()
