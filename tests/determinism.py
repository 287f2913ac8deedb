"""Replaying a run on trio, which shuffles ready tasks on purpose and from an unseeded generator."""

from __future__ import annotations

import random
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from unittest import mock

import pytest

__all__ = ["seeded_trio"]


@contextmanager
def seeded_trio(seed: int) -> Generator[None, None, None]:
    """Make trio's order of ready tasks a function of `seed` for runs inside the block.

    The switch is private to trio, made for pytest-trio; this fails loudly where it has gone. asyncio needs
    nothing of the kind: it keeps the order of readiness.
    """
    scheduler = import_module("trio._core._run")
    if not hasattr(scheduler, "_ALLOW_DETERMINISTIC_SCHEDULING") or not hasattr(scheduler, "_r"):
        pytest.fail("trio has moved its scheduler's private switch: seeded runs no longer replay")
    with mock.patch.multiple(scheduler, _ALLOW_DETERMINISTIC_SCHEDULING=True, _r=random.Random(seed)):
        yield
