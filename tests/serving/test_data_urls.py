"""Data URLs and bodies as clients really send them."""

from __future__ import annotations

import base64

import pytest

from seer.errors import InputError
from seer.serving.chat import decode_data_url

DATA = b"\xfb\xff?The fee is 90 crowns a month.\x00\xfe"
PLAIN = base64.b64encode(DATA).decode()


@pytest.mark.parametrize(
    "url",
    [
        f"data:text/plain;base64,{PLAIN}",
        f"DATA:TEXT/PLAIN;BASE64,{PLAIN}",
        f"data:application/pdf;name=my lease.txt;base64,{PLAIN}",
        f'data:application/pdf;name="a.pdf"; base64,{PLAIN}',
        f"data:;base64,{PLAIN.rstrip('=')}",
        "data:a/b;base64," + base64.urlsafe_b64encode(DATA).decode(),
        "data:a/b;base64," + "\r\n".join(PLAIN[at : at + 8] for at in range(0, len(PLAIN), 8)) + "\n",
        "data:a/b;base64," + PLAIN.replace("+", "%2B").replace("/", "%2F").replace("=", "%3D"),
        f" data:a/b;charset=utf-8;base64,{PLAIN}",
    ],
)
def test_decode_data_url_reads_what_clients_write(url):
    assert decode_data_url(url, "file_data") == DATA


@pytest.mark.parametrize("payload", ["????", "a", "QUJD!", "QUJ=DA==", "é"])
def test_decode_data_url_rejects_damaged_data(payload):
    with pytest.raises(InputError, match="file_data holds damaged base64"):
        decode_data_url(f"data:a/b;base64,{payload}", "file_data")


@pytest.mark.parametrize("url", ["https://example.org/a.pdf", "file:///etc/passwd", "data", "data:a/b;base64"])
def test_decode_data_url_fetches_nothing(url):
    with pytest.raises(InputError, match="is not a data URL; nothing is fetched"):
        decode_data_url(url, "file_data")
