"""The configuration of a teacher."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from seer.schema import Record


class TeacherSpec(Record):
    """A model behind an OpenAI-compatible address, or in this process through vLLM."""

    base_url: str = ""
    """E.g. http://127.0.0.1:8000/v1. Empty: `model` is loaded here through vLLM."""
    model: str
    api_key_env: str = "OPENAI_API_KEY"
    """The environment variable that holds the key, if the server needs one."""
    temperature: float = Field(0.3, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=0)
    """0 is not sent."""
    max_tokens: int = Field(2048, ge=1)
    """Token limit of a reply, thinking included. A judge that does not think stops after one word."""
    extra: dict[str, Any] = {}
    """Further keys of the request body, e.g. {chat_template_kwargs = {enable_thinking = true}}."""
    concurrency: int = Field(64, ge=1, le=4096)
    timeout_s: float = Field(300.0, gt=0)
    attempts: int = Field(6, ge=1)
    """Attempts of one call at a server, after transient errors: timeouts, lost connections, 408, 409, 425, 429, 5xx."""
    backoff_s: float = Field(0.5, ge=0)
    """Limit of the first wait, which is random; the limit doubles up to a minute."""
    usd_per_million_prompt_tokens: float = Field(0.0, ge=0)
    usd_per_million_completion_tokens: float = Field(0.0, ge=0)
