"""Time from text to PNG pages, compared with the tools people use today.

    python scripts/bench/bench_render.py            # the whole table, some minutes
    python scripts/bench/bench_render.py --quick    # the same keys on fewer pages, under 50 s

Texts are LongBench samples in English, Chinese and code, found at ../shared/data or at $SEER_SHARED_DATA. Each path
starts from a text and ends with PNG bytes, in one process. Times are processor time including child processes, so that
they mean one core whatever else runs on the machine; the best of a few rounds counts:

    direct            Seer's own: layout, cached glyph bitmaps, PNG
    pdf + pdfium      the same layout through a reportlab canvas, drawn by pypdfium2
    pdf + poppler     the same PDF, drawn by pdf2image
    baseline          reportlab Paragraph and SimpleDocTemplate, drawn by pdf2image, saved by Pillow: thirty source
                      lines a Paragraph, joined by <br/>, as public renderers for such models do today
    baseline, by line the same with one Paragraph a source line, its fastest use

pdf2image needs poppler's command-line tools. Without them its three paths are left out, and their figures are null.
The last line of output is JSON with the figures that are tracked.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import math
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

TASKS = {"en": "gov_report", "zh": "vcsum", "code": "lcc"}
"""The LongBench task that provides each type of text."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer pages and rounds, under 50 s")
    parser.add_argument("--stream", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--draw-every", type=int, default=1, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.stream:
        print(json.dumps(stream_pages(arguments.stream, arguments.draw_every)))
        return
    pages, rounds = (12, 8) if arguments.quick else (40, 5)
    texts = {kind: sample_documents(kind, pages) for kind in TASKS}
    figures: dict[str, Any] = {"bench": "render"}
    direct = {kind: measure_direct(documents, rounds) for kind, documents in texts.items()}
    print_direct(direct)
    has_poppler = shutil.which("pdftoppm") is not None
    if not has_poppler:
        print("\npoppler is not installed (pdftoppm): the paths through pdf2image are left out, their figures are null")
    rounds = 2 if arguments.quick else 3
    paths = {kind: measure_paths(texts[kind], kind, rounds, has_poppler=has_poppler) for kind in texts}
    print_paths(paths)
    figures |= {f"{kind}_ms_per_page": paths[kind]["direct"] for kind in ("en", "zh", "code")}
    figures["layout_en_ms_per_page"] = direct["en"]["layout"]
    figures["baseline_en_ms_per_page"] = paths["en"].get("baseline")
    figures["speedup_en"] = speedup(paths["en"], "direct")
    figures["speedup_zh"] = speedup(paths["zh"], "direct")
    figures["pdf_speedup_en"] = speedup(paths["en"], "pdf + pdfium")
    print_processes("\n".join(texts["en"]), processes=(1, 2), copies=2 if arguments.quick else 8)
    peaks = print_scaling((100, 10_000) if arguments.quick else (10, 100, 1_000, 10_000), quick=arguments.quick)
    figures["peak_mb_100_pages"], figures["peak_mb_10000_pages"] = peaks[100], peaks[10_000]
    print(json.dumps({key: round(value, 3) if isinstance(value, float) else value for key, value in figures.items()}))


# ── Texts ────────────────────────────────────────────────────────────────────────────────────────


def sample_contexts(kind: str) -> list[str]:
    folder = Path(os.environ.get("SEER_SHARED_DATA", ROOT.parent / "shared" / "data"))
    path = folder / "longbench" / "samples" / f"{TASKS[kind]}.jsonl"
    if not path.is_file():
        sys.exit(f"no samples at {path}; set SEER_SHARED_DATA to the folder that holds longbench/samples")
    return [json.loads(line)["context"] for line in path.read_text(encoding="utf-8").splitlines()]


def sample_documents(kind: str, pages: int) -> list[str]:
    """Whole documents that together have about that many pages."""
    chars = pages * {"en": 9000, "zh": 4300, "code": 3300}[kind]
    documents: list[str] = []
    for context in itertools.cycle(sample_contexts(kind)):
        if sum(map(len, documents)) >= chars:
            break
        documents.append(context)
    return documents


def best(rounds: int, run: Callable[[], Any]) -> tuple[float, Any]:
    """(processor seconds of the fastest round, result of the last one)."""
    seconds = []
    for _ in range(rounds):
        start = processor_seconds()
        result = run()
        seconds.append(processor_seconds() - start)
    return min(seconds), result


def processor_seconds() -> float:
    """Processor time used by this process and its finished children."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


# ── The direct path ──────────────────────────────────────────────────────────────────────────────


def measure_direct(texts: list[str], rounds: int) -> dict[str, float]:
    """Milliseconds a page of each step, cold and warm, and bytes a page."""
    from seer.rendering import png_bytes, render_text
    from seer.rendering.drawing.raster import atlas_for

    def whole() -> list[bytes]:
        return [page.png() for text in texts for page in render_text(text)]

    whole_once = whole()
    atlas_for.cache_clear()
    cold_s, _ = best(1, whole)
    total_s, _ = best(rounds, whole)
    layout_s, documents = best(rounds, lambda: [render_text(text) for text in texts])
    raster_s, images = best(rounds, lambda: [page.image() for document in documents for page in document])
    png_s, files = best(rounds, lambda: [png_bytes(image) for image in images])
    num = len(images)
    smallest = sum(smallest_png(image) for image in images[:4]) / sum(map(len, files[:4]))
    milliseconds = {
        "layout": layout_s, "raster": raster_s, "png": png_s, "total": total_s, "cold": cold_s
    }  # fmt: skip
    return {name: seconds * 1e3 / num for name, seconds in milliseconds.items()} | {
        "pages": num,
        "bytes": sum(map(len, whole_once)) / num,
        "size_ratio": 1 / smallest,
    }


def smallest_png(image: Any) -> int:
    """Bytes of the smallest PNG that Pillow can write of the image, at any speed."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG", optimize=True)
    return len(buffer.getvalue())


def print_direct(direct: dict[str, dict[str, float]]) -> None:
    print(f"{'direct, ms a page':20}{'pages':>7}{'layout':>8}{'raster':>8}{'png':>8}{'total':>8}", end="")
    print(f"{'cold':>8}{'pages/s':>9}{'KB/page':>9}{'x smallest':>11}")
    for kind, row in direct.items():
        print(f"{kind:20}{row['pages']:7.0f}{row['layout']:8.2f}{row['raster']:8.2f}{row['png']:8.2f}", end="")
        print(f"{row['total']:8.2f}{row['cold']:8.2f}{1e3 / row['total']:9.0f}{row['bytes'] / 1e3:9.1f}", end="")
        print(f"{row['size_ratio']:11.2f}")


# ── All paths ──────────────────────────────────────────────────────────────────────────────


def measure_paths(texts: list[str], kind: str, rounds: int, *, has_poppler: bool) -> dict[str, float]:
    """Milliseconds a page of each path, text to PNG; the best of the rounds.

    A shared machine is fast in some seconds and slow in others: the paths take turns, so that all meet both. A round of
    the direct path is by far the shortest, so several of its rounds precede each round of another path.
    """
    from seer.rendering import png_bytes, render_text
    from seer.rendering.drawing.reportlab import Engine, pdf_bytes, rasterise

    def through_canvas(text: str, engine: Engine) -> int:
        return len(
            [png_bytes(image) for image in rasterise(pdf_bytes(render_text(text), compress=False), engine=engine)]
        )

    paths: dict[str, Callable[[str], int]] = {"pdf + pdfium": lambda text: through_canvas(text, "pdfium")}
    if has_poppler:
        paths |= {
            "pdf + poppler": lambda text: through_canvas(text, "poppler"),
            "baseline": lambda text: through_paragraphs(text, kind, lines_together=30),
            "baseline, by line": lambda text: through_paragraphs(text, kind, lines_together=1),
        }

    def directly(text: str) -> int:
        return sum(1 for page in render_text(text) if page.png())

    milliseconds = dict.fromkeys(("direct", *paths), math.inf)
    for _ in range(rounds):
        for name, path in paths.items():
            for turn, run, repeats in (("direct", directly, 4), (name, path, 1)):
                seconds, pages = best(repeats, lambda run=run: sum(map(run, texts)))
                milliseconds[turn] = min(milliseconds[turn], seconds * 1e3 / pages)
    return milliseconds


def through_paragraphs(text: str, kind: str, lines_together: int) -> int:
    """Render as public tools do today. Returns the number of pages."""
    from pdf2image import convert_from_bytes
    from reportlab.lib.styles import ParagraphStyle
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase.ttfonts import TTFont
    from reportlab.platypus import Paragraph, SimpleDocTemplate

    from seer.rendering.layout.fonts import DATA_DIR

    font = "DroidSansFallback" if kind == "zh" else "DejaVuSans"
    pdfmetrics.registerFont(TTFont(font, str(DATA_DIR / f"{font}.ttf")))
    style = ParagraphStyle("text", fontName=font, fontSize=9, leading=10, wordWrap="CJK" if kind == "zh" else None)
    buffer = io.BytesIO()
    document = SimpleDocTemplate(
        buffer, pagesize=(595, 842), leftMargin=20, rightMargin=20, topMargin=20, bottomMargin=20
    )
    lines = [escape(line) or "&nbsp;" for line in text.split("\n")]
    blocks = ("<br/>".join(lines[at : at + lines_together]) for at in range(0, len(lines), lines_together))
    document.build([Paragraph(block, style) for block in blocks])
    images = convert_from_bytes(buffer.getvalue(), dpi=72)
    for image in images:
        image.save(io.BytesIO(), "PNG")
    return len(images)


def speedup(paths: dict[str, float], name: str) -> float | None:
    """How many times faster a path is than the baseline; None without a baseline."""
    return paths["baseline"] / paths[name] if "baseline" in paths else None


def print_paths(paths: dict[str, dict[str, float]]) -> None:
    print(f"\n{'text to PNG, ms a page':24}" + "".join(f"{kind:>10}" for kind in paths) + f"{'x baseline, en':>17}")
    for name in paths["en"]:
        ratio = speedup(paths["en"], name)
        row = "".join(f"{paths[kind][name]:10.1f}" for kind in paths)
        print(f"{name:24}{row}" + ("" if ratio is None else f"{ratio:17.1f}"))


# ── Scaling ──────────────────────────────────────────────────────────────────────────────────────


def render_all(text: str) -> int:
    from seer.rendering import stream

    return sum(1 for page in stream(text) if page.png())


def print_processes(text: str, processes: tuple[int, ...], copies: int) -> None:
    print(f"\n{'processes':12}{'pages/s':>10}   (by the clock; {os.cpu_count()} cores, {copies * 2} documents)")
    for num in processes:
        with ProcessPoolExecutor(num) as pool:
            list(pool.map(render_all, ["warm up"] * num * 2))
            start = time.perf_counter()
            pages = sum(pool.map(render_all, [text] * copies * 2))
            seconds = time.perf_counter() - start
        print(f"{num:<12}{pages / seconds:10.0f}")


def print_scaling(counts: tuple[int, ...], *, quick: bool) -> dict[int, float]:
    """Time and peak memory of streaming that many pages, each in a separate process. Returns MB by page count."""
    every = 10 if quick else 1
    note = ", one page in ten drawn" if quick else ""
    print(f"\n{'pages streamed':16}{'seconds':>9}{'ms a page':>11}{'peak MB':>9}   (text to PNG{note})")
    peaks = {}
    for count in counts:
        command = [sys.executable, __file__, "--stream", str(count), "--draw-every", str(every)]
        row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(f"{count:<16}{row['seconds']:9.2f}{row['seconds'] * 1e3 / count:11.2f}{row['peak_mb']:9.0f}")
        peaks[count] = row["peak_mb"]
    return peaks


def stream_pages(count: int, draw_every: int) -> dict[str, float]:
    """Stream `count` pages of English; every page is laid out, one in `draw_every` is drawn and encoded."""
    from seer.rendering import stream

    def pieces() -> Iterator[str]:
        for context in itertools.cycle(sample_contexts("en")):
            yield context + "\n"

    start = processor_seconds()
    for page in itertools.islice(stream(pieces()), count):
        if page.number % draw_every == 0:
            page.png()
    seconds = processor_seconds() - start
    return {"seconds": seconds, "peak_mb": peak_mb()}


def peak_mb() -> float:
    """Peak memory of this process in MB. VmHWM excludes memory that the parent held before the fork."""
    status = Path("/proc/self/status")
    if status.is_file():
        return int(re.search(r"VmHWM:\s+(\d+)", status.read_text())[1]) / 1024  # type: ignore[index]
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
