"""The page cache: it returns the same pixels, recovers from damage, and keeps its size limit."""

from __future__ import annotations

import io
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from seer.errors import InputError
from seer.rendering import png_bytes, render_text
from seer.rendering.cache import PageCache


def fill(folder: str) -> int:
    """Put every page of a document into the cache; return the total size in bytes."""
    cache = PageCache(Path(folder))
    return sum(len(cache.png(page)) for page in render_text("".join(f"line {k} of many\n" for k in range(400))))


def test_cache_png_draws_page_once(tmp_path):
    cache = PageCache(tmp_path)
    page = render_text("cached").page(1)
    data = cache.png(page)
    assert (np.array(Image.open(io.BytesIO(data))) == page.image()).all()
    page.attach(lambda _: pytest.fail("the page was drawn again"))
    assert cache.png(page) == data
    assert cache.info().pages == 1 and cache.info().bytes == len(data)


def test_cache_png_redraws_damaged_entry(tmp_path):
    cache = PageCache(tmp_path)
    page = render_text("cached").page(1)
    data = cache.png(page)
    (path,) = tmp_path.glob("??/*.png")
    path.write_bytes(data[: len(data) // 2])
    assert cache.get(page.content_hash) is None
    assert cache.png(page) == data == path.read_bytes()


def test_cache_trim_removes_least_recently_used_pages(tmp_path):
    cache = PageCache(tmp_path, max_bytes=50_000)
    data = png_bytes(np.random.default_rng(0).integers(0, 256, (100, 100), dtype=np.uint8))
    for number in range(6):
        cache.put(f"{number:032x}", data)
        os.utime(cache._path(f"{number:032x}"), (number, number))
    assert cache.get(f"{0:032x}") == data  # reading a page marks it as used
    assert cache.trim() == 2
    assert cache.get(f"{0:032x}") and not cache.get(f"{1:032x}") and not cache.get(f"{2:032x}")
    assert cache.info().bytes <= 50_000
    assert cache.clear() == 4 and cache.info().pages == 0


def test_cache_shared_by_processes_holds_each_page_once(tmp_path):
    with ProcessPoolExecutor(2) as pool:
        sizes = list(pool.map(fill, [str(tmp_path)] * 4))
    assert len(set(sizes)) == 1
    assert PageCache(tmp_path).info().bytes == sizes[0]
    assert not list(tmp_path.glob("*/.*"))


def test_cache_default_reads_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("SEER_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("SEER_CACHE_MB", "3")
    assert PageCache.default().folder == tmp_path and PageCache.default().max_bytes == 3 << 20
    monkeypatch.setenv("SEER_CACHE_MB", "lots")
    with pytest.raises(InputError, match="SEER_CACHE_MB"):
        PageCache.default()


def test_cache_rejects_limit_below_one(tmp_path):
    with pytest.raises(InputError, match="max_bytes=0: must be at least 1"):
        PageCache(tmp_path, max_bytes=0)


def test_cache_put_of_page_above_the_limit_keeps_the_cache_within_it(tmp_path):
    cache = PageCache(tmp_path, max_bytes=100)
    cache.put(f"{1:032x}", b"x" * 60)
    assert cache.trim() == 0 and cache.info().pages == 1
    cache.put(f"{2:032x}", b"x" * 101)
    assert cache.info().bytes <= 100


def test_cache_info_skips_page_that_another_process_removed(tmp_path):
    cache = PageCache(tmp_path)
    cache.put("ab" * 16, b"data")
    (tmp_path / "ab" / "gone.png").symlink_to(tmp_path / "nowhere.png")  # as a file between listing and inspection
    assert cache.info().pages == 1 and cache.info().bytes == 4
