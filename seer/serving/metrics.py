"""The counters of a server, in the format of Prometheus."""

from __future__ import annotations

from seer.schema import Answer, Document


class ServerMetrics:
    """The counters of one server, in a separate registry."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.registry = CollectorRegistry()
        self.requests = Counter(
            "seer_http_requests", "HTTP requests by route and status.", ["route", "status"], registry=self.registry
        )
        self.request_seconds = Histogram(
            "seer_http_request_seconds",
            "Seconds until the last byte of the reply.",
            ["route"],
            registry=self.registry,
            buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600),
        )
        self.running = Gauge("seer_chats_under_way", "Chats running or waiting.", registry=self.registry)
        self.answers = Counter("seer_answers", "Chats by outcome.", ["status"], registry=self.registry)
        self.pages = Histogram(
            "seer_document_pages",
            "Pages of a chat's documents.",
            registry=self.registry,
            buckets=(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000),
        )
        self.tokens = Counter(
            "seer_tokens",
            "Tokens: those of the last prompt by kind, and what the full text would have cost.",
            ["kind"],
            registry=self.registry,
        )
        self.deviations = Counter(
            "seer_call_deviations", "Select calls that depart from the protocol.", ["kind"], registry=self.registry
        )

    def count_answer(self, document: Document, answer: Answer) -> None:
        """Count an answer, its document's pages, its tokens and its deviations from the protocol."""
        self.answers.labels(str(answer.status)).inc()
        self.pages.observe(len(document.pages))
        for kind, value in answer.usage.model_dump().items():
            self.tokens.labels(kind).inc(value)
        for name in {name for step in answer.trace for name in step.deviations}:
            self.deviations.labels(name).inc()

    def exposition(self) -> tuple[bytes, str]:
        """The body and the content type of /metrics."""
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        return generate_latest(self.registry), CONTENT_TYPE_LATEST
