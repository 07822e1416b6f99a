"""Render trajectories as one HTML file: pages, selected pages, and the conversation coloured by loss class.

All text from a set is escaped. The content security policy forbids scripts and external resources.
"""

from __future__ import annotations

from collections.abc import Iterable

from data_pipeline.collect import draw_pages
from seer.protocol.turns import layout
from seer.schema import Trajectory
from seer.web.components import facts, loss_legend, loss_span, loss_text, note_line, page_strip, thumbnail, thumbnails
from seer.web.html import Html, element, render_page

MAX_PAGES_SHOWN = 12


def gallery_html(name: str, trajectories: Iterable[Trajectory], total: int) -> str:
    """Render trajectories as a complete page.

    `name` is the page's title and `total` the number of trajectories in the set that they come from.
    """
    articles = [_article(number, trajectory) for number, trajectory in enumerate(trajectories, 1)]
    return render_page(
        name,
        note_line(f"{len(articles):,} of {total:,} trajectories. Selected pages are framed."),
        loss_legend(),
        articles,
    )


def _article(number: int, trajectory: Trajectory) -> Html:
    selected = {page for turn in trajectory.turns if turn.kind == "call" for page in turn.pages}
    pages = draw_pages(trajectory)
    figures = [
        thumbnail(page, png, f"page {page}", is_selected=page in selected, anchor=f"t{number}-p{page}")
        for page, png in enumerate(pages[:MAX_PAGES_SHOWN], 1)
    ]
    left_out = len(pages) - len(figures)
    return element(
        "article",
        element("h2", trajectory.id),
        facts(
            {
                "question": trajectory.question,
                "answers": " / ".join(trajectory.answers),
                "relevant pages": ", ".join(map(str, trajectory.relevant_pages)) or "none",
                **trajectory.provenance,
            }.items()
        ),
        page_strip(len(pages), selected),
        thumbnails(figures),
        note_line(f"{left_out:,} more pages are not shown.") if left_out > 0 else None,
        # Every piece of the conversation is coloured by its loss class; images appear as their markers.
        loss_text(loss_span(piece.value, piece.loss_class) for piece in layout(trajectory.turns)),
        id=f"t{number}",
    )
