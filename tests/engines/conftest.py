"""Fixtures of the engine tests."""

from vllm_fakes import stand_in

__all__ = ["stand_in"]
