"""What a decision says of worths is for a reader: frames of a class of priority, never powers of 16."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress

import anyio
import pytest

from repertory.models.errors import RepertoryError
from repertory.runtime.model import Model
from repertory.runtime.runtime import Runtime
from tests.runtime.support import open_virtual, sketched, tensor

pytestmark = pytest.mark.virtual

CLASSES = [(0, 0, 0), (8, 8, 7), (-8, -8, -8), (127, 8, 0), (-128, -7, 5)]


def _open() -> Runtime:
    return open_virtual("sim://?window=1&service_ms=2&swap_ms=8")


async def _loaded(rt: Runtime, classes: Sequence[int]) -> list[Model]:
    return [await rt.load(sketched(f"m{number}"), priority=each) for number, each in enumerate(classes)]


async def _ask(models: Sequence[Model], requests: int, timeout: float) -> None:
    """Put so many requests on each model, at once; what cannot be in time is lost."""

    async def one(model: Model) -> None:
        with suppress(RepertoryError):
            await model.infer(tensor(1), timeout=timeout)

    async with anyio.create_task_group() as callers:
        for model in models:
            for _ in range(requests):
                callers.start_soon(one, model)


def _told(rt: Runtime, start: str) -> list[str]:
    """Return reasons that begin so; no reason at all has a number that nobody reads."""
    told = [each.reason for each in rt.explain()]
    assert not [reason for reason in told if re.search(r"\d{5}|e[+-]\d", reason)]
    return [reason for reason in told if reason.startswith(start)]


@pytest.mark.parametrize("classes", CLASSES)
async def test_worths_are_told_in_frames_of_a_class(classes: tuple[int, ...]) -> None:
    async with _open() as rt:
        models = await _loaded(rt, classes)
        for _ in range(20):
            await _ask(models, 5, 0.03)
        worths = _told(rt, "most worth: ")
    found = [
        re.match(r"most worth: ([\d.]+) frames of priority (-?\d+) more than its time, over", reason)
        for reason in worths
    ]
    figures = [(float(each[1]), int(each[2])) for each in found if each]
    assert len(figures) == len(worths) > 0
    assert {priority for _, priority in figures} <= set(classes)
    assert 1 < max(worth for worth, _ in figures) < 100


async def test_time_that_earned_more_in_a_higher_class_is_no_huge_loss() -> None:
    async with _open() as rt:
        high, *low = await _loaded(rt, (8, 0, 0))
        for _ in range(5):
            await _ask([high], 20, 0.05)
            await _ask(low, 5, 0.025)
        assert _told(rt, "most worth, though time earned more of late, over 0.0")
