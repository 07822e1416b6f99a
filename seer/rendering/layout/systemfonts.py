"""Find fonts that the operating system has installed, such as Verdana, by name.

>>> find_system_font("No Such Font 123") is None
True
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_SUFFIXES = (".ttf", ".otf", ".ttc")
_REGULAR = frozenset({"", "regular", "book", "roman", "normal"})


def font_folders() -> list[Path]:
    """Return the folders in which the operating system keeps fonts, the user's own first."""
    home = Path.home()
    if sys.platform == "win32":
        local = Path(os.environ.get("LOCALAPPDATA", home / "AppData/Local"))
        return [local / "Microsoft/Windows/Fonts", Path(os.environ.get("WINDIR", "C:/Windows")) / "Fonts"]
    if sys.platform == "darwin":
        return [home / "Library/Fonts", Path("/Library/Fonts"), Path("/System/Library/Fonts")]
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local/share")
    return [data / "fonts", home / ".fonts", Path("/usr/local/share/fonts"), Path("/usr/share/fonts")]


def find_system_font(name: str) -> Path | None:
    """Return the file of the installed font with this name, or None if there is none.

    A file name matches first, such as `verdana.ttf` for "Verdana"; then the family name inside a file, in its regular
    weight. Case, spaces and hyphens do not count.
    """
    wanted = _plain(name)
    files = [
        file
        for folder in font_folders()
        for file in sorted(folder.rglob("*"))
        if file.suffix.lower() in _SUFFIXES and file.is_file()
    ]
    by_file_name = (file for file in files if _plain(file.stem) == wanted)
    by_family = (file for file in files if _is_regular(file, wanted))
    return next(by_file_name, None) or next(by_family, None)


def _is_regular(file: Path, family: str) -> bool:
    """Return whether the file holds the regular weight of this family."""
    from PIL import ImageFont

    try:
        name, weight = ImageFont.truetype(file).getname()
    except OSError:
        return False
    return _plain(name or "") == family and _plain(weight or "") in _REGULAR


def _plain(name: str) -> str:
    return "".join(character for character in name.casefold() if character.isalnum())
