"""DocLens as a system.

    system = DocLens(engine, roles={"navigator": cheap_engine}, config=DocLensConfig(answer_samples=4))
    answer = system.ask(document, "How many plants were closed in 2021?")

Steps of a trace: navigate, localize, sample, adjudicate, answer.
"""

from __future__ import annotations

from collections.abc import Mapping

from seer.engines.base import Engine
from seer.schema import PageStyle
from seer.systems.doclens.config import DocLensConfig
from seer.systems.doclens.localizer import localize
from seer.systems.doclens.navigator import navigate
from seer.systems.doclens.reasoning import adjudicate, sample_answers
from seer.systems.evidence.budget import Budget
from seer.systems.evidence.elements import LayoutDetector, RapidLayout
from seer.systems.evidence.system import EvidenceSystem, Question, Verdict


class DocLens(EvidenceSystem):
    """Algorithm 1 of the paper: lens module (navigator, localizer), then reasoning module (sampler, adjudicator)."""

    name = "doclens"

    def __init__(
        self,
        engine: Engine,
        *,
        config: DocLensConfig | None = None,
        detector: LayoutDetector | None = None,
        roles: Mapping[str, Engine] | None = None,
        style: str | PageStyle = "seer",
        seed: int = 0,
    ) -> None:
        """Create the system.

        Args:
            engine: Answers every call; `roles` may name others for "navigator", "sampler" and "adjudicator".
            config: The paper's values by default.
            detector: Finds tables and figures; by default the one of the extra `ocr`.
            style, seed: See `EvidenceSystem`.

        Raises ModelError if the localizer is on and its detector is not installed.
        """
        super().__init__(engine, roles=roles, style=style, seed=seed)
        self.config = config or DocLensConfig()
        wants_crops = self.config.lens and self.config.localizer
        self.detector = (detector or RapidLayout(self.config.min_score)) if wants_crops else None

    @property
    def budget(self) -> Budget:
        return self.config.budget

    async def answer(self, question: Question) -> Verdict:
        config, document = self.config, question.document
        if not config.lens:
            pages = tuple(page.number for page in document.pages)
        elif config.oracle:
            pages = tuple(page for page in question.task.gold_pages if 1 <= page <= len(document.pages))
        else:
            pages = await navigate(question, config, self.seed)
        evidence = await localize(question, pages, self.detector, config)
        candidates = await sample_answers(question, evidence, config, self.seed)
        final = await adjudicate(question, candidates, config, self.seed) if config.reasoning else candidates[0]
        # Without the lens no page was chosen as evidence.
        return Verdict(final.answer, pages if config.lens else (), final.quotes, final.answerable)
