"""E-mail messages: headers, the plain text, and marks for attachments."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest

from tests.rendering.formats.extra.test_extra import kinds, read


def test_load_eml_prefers_plain_text_decodes_headers_and_lists_attachments():
    from email.message import EmailMessage

    message = EmailMessage()
    message["From"], message["To"] = "Žofie <a@example.com>", "b@example.com"
    message["Subject"] = "Die Rechnung für Mai"
    message.set_content("Der Preis beträgt 42 €.\n", charset="iso-8859-15", cte="quoted-printable")
    message.add_alternative("<p>Der Preis ist <b>42</b>.</p>", subtype="html")
    message.add_attachment(b"\x89PNG" * 100, maintype="image", subtype="png", filename="chart.png")
    inner = EmailMessage()
    inner["Subject"] = "Before"
    inner.set_content("The old text.")
    message.add_attachment(inner)
    document = read(message.as_bytes(), "a.eml")
    assert document.text.startswith(
        "From: Žofie <a@example.com>\nTo: b@example.com\nSubject: Die Rechnung für Mai\n\nDer Preis beträgt 42 €.\n"
    )
    assert "Preis ist" not in document.text and "[attachment: chart.png, image/png, 400 bytes]" in document.text
    assert "Subject: Before\n\nThe old text." in document.text
    assert kinds(document) == ["attachment"]


def test_load_eml_reads_html_if_there_is_nothing_else():
    head = b"From: a@example.com\r\nSubject: x\r\nMIME-Version: 1.0\r\nContent-Type: text/html; charset=utf-8"
    source = head + b"\r\n\r\n<p>The <b>total</b> is 42.</p>"
    assert read(source, "a.eml").text == "From: a@example.com\nSubject: x\n\nThe total is 42.\n"


def test_load_text_with_lines_like_headers_is_text():
    text = "Subject: a title\nDate: today\n\nThis is a note.\n"
    assert read(text.encode(), "a.txt").text == text


def compound(streams: dict[str, bytes]) -> bytes:
    """A compound file (the container of Outlook messages): streams by path, each padded to whole sectors."""
    tree: dict[str, dict[str, bytes]] = {}
    for path, data in streams.items():
        folder, _, leaf = path.rpartition("/")
        tree.setdefault(folder, {})[leaf] = data.ljust(4096, b"\0")
    entries: list[list] = [["Root Entry", 5, -1, 0, 0xFFFFFFFE, 0]]  # name, kind, child, next, sector, size
    bodies: list[bytes] = []

    def add(name: str, kind: int, data: bytes = b"") -> int:
        start = sum(len(body) // 512 for body in bodies)
        entries.append([name, kind, -1, -1, start if data else 0, len(data)])
        if data:
            bodies.append(data.ljust(-(-len(data) // 512) * 512, b"\0"))
        return len(entries) - 1

    def chain(names: list[int]) -> int:
        for first, second in pairwise(names):
            entries[first][3] = second
        return names[0] if names else -1

    top = [add(name, 2, data) for name, data in sorted(tree.get("", {}).items())]
    for folder in sorted(set(tree) - {""}):
        place = add(folder, 1)
        entries[place][2] = chain([add(name, 2, data) for name, data in sorted(tree[folder].items())])
        top.append(place)
    entries[0][2], entries[0][3] = chain(top), -1
    content = b"".join(bodies)
    sectors = len(content) // 512
    fat: list[int] = []
    for body in bodies:
        first = len(fat)
        fat += [*range(first + 1, first + len(body) // 512), 0xFFFFFFFE]
    directory = b"".join(
        name.encode("utf-16-le").ljust(64, b"\0")
        + struct.pack(
            "<HBBiii16sIQQIII",
            2 * len(name) + 2,
            kind,
            1,
            -1,
            following,
            child,
            b"",
            0,
            0,
            0,
            sector if kind == 2 else 0xFFFFFFFE if kind == 5 else 0,
            size,
            0,
        )
        for name, kind, child, following, sector, size in entries
    )
    directory = directory.ljust(-(-len(directory) // 512) * 512, b"\0")
    count = len(directory) // 512
    fat += [*range(sectors + 1, sectors + count), 0xFFFFFFFE]
    num_fat = -(-(len(fat) + 2) // 128)
    fat += [0xFFFFFFFD] * num_fat
    table = struct.pack(f"<{len(fat)}I", *fat).ljust(num_fat * 512, b"\xff")
    where = [sectors + count + k for k in range(num_fat)]
    header = struct.pack(
        "<8s16sHHHHH6sIIIIIIIII",
        bytes.fromhex("d0cf11e0a1b11ae1"),
        b"",
        62,
        3,
        0xFFFE,
        9,
        6,
        b"",
        0,
        num_fat,
        sectors,
        0,
        4096,
        0xFFFFFFFE,
        0,
        0xFFFFFFFE,
        0,
    )
    header += struct.pack("<109I", *where, *[0xFFFFFFFF] * (109 - num_fat))
    return header + content + directory + table


def test_load_msg_reads_headers_body_and_attachments():
    pytest.importorskip("olefile", reason="needs the extra formats")
    streams = {
        "__substg1.0_0037001F": "Die Rechnung".encode("utf-16-le"),
        "__substg1.0_0C1A001F": "Žofie".encode("utf-16-le"),
        "__substg1.0_0E04001F": "Guest".encode("utf-16-le"),
        "__substg1.0_1000001F": "The total is 42 €.\r\nBye".encode("utf-16-le"),
        "__attach_version1.0_#00000000/__substg1.0_3707001F": "chart.png".encode("utf-16-le"),
        "__attach_version1.0_#00000000/__substg1.0_37010102": b"x" * 5000,
    }
    document = read(compound(streams), "a.msg")
    assert document.text == (
        "From: Žofie\nTo: Guest\nSubject: Die Rechnung\n\nThe total is 42 €.\nBye\n\n"
        "[attachment: chart.png, file, 5,000 bytes]\n"
    )
    assert kinds(document) == ["attachment"]
