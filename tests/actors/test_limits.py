"""Limits of a model: what is refused, and what that says."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from repertory.actors.limits import LONGEST, Limits, Overflow
from repertory.models.errors import ConfigError
from repertory.models.spec import TensorSpec

WHOLE = {"queue": (1, 7), "queue_bytes": (1, 1 << 40), "max_in_flight": (1, 99), "priority": (-128, 127)}
REAL = {"weight": (1e-6, 1e6), "timeout": (1e-9, LONGEST), "max_wait": (1e-9, LONGEST)}
NO_NUMBERS = (math.nan, math.inf, -math.inf, True, np.True_, "3", b"3", 1j, [1], np.ones(1))
OUT_OF_RANGE = {
    "queue": (0, -1),
    "queue_bytes": (0, -1),
    "max_in_flight": (0, -1),
    "priority": (-129, 128, 10**30),
    "weight": (0, -1, 1e-7, 1e7, 10**400),
    "timeout": (0, -1, 2e9, 10**400),
    "max_wait": (0, -1, 2e9),
}


@pytest.mark.parametrize("name", [*WHOLE, *REAL])
def test_a_wrong_number_is_refused_by_name(name: str) -> None:
    wrong: list[Any] = [*NO_NUMBERS, *OUT_OF_RANGE[name]]
    if name in WHOLE:
        wrong += [1.5, 2.0, np.float32(2)]
    if name not in {"timeout", "max_in_flight"}:
        wrong.append(None)
    for value in wrong:
        with pytest.raises(ConfigError, match=f"^{name} .* came, "):
            Limits(**{name: value})
        with pytest.raises(ConfigError, match=f"^{name} .* came, "):
            Limits().changed({name: value})  # type: ignore[misc]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("name", "ends"), [*WHOLE.items(), *REAL.items()])
def test_numbers_of_numpy_are_kept_as_pythons_own(name: str, ends: tuple[float, float]) -> None:
    kind: Any = np.int64 if name in WHOLE else np.float64
    own = int if name in WHOLE else float
    for end in ends:
        kept = getattr(Limits(**{name: kind(end)}), name)
        assert kept == end
        assert type(kept) is own


def test_changes_leave_the_rest_as_it_is() -> None:
    limits = Limits(queue=3, timeout=2.0)
    assert limits.changed({"weight": 2}) == Limits(queue=3, timeout=2.0, weight=2.0)
    assert limits.changed({"timeout": None}) == Limits(queue=3)
    assert limits.changed({"overflow": "wait"}).overflow is Overflow.WAIT  # type: ignore[typeddict-item]
    with pytest.raises(ConfigError, match="'quueue' is no limit of a model; there are queue, "):
        limits.changed({"quueue": 1})  # type: ignore[typeddict-unknown-key]


def test_queue_that_could_not_hold_one_request_is_refused() -> None:
    inputs = [TensorSpec(name, (5,), np.dtype(np.float32)) for name in "ab"]
    Limits(queue_bytes=40).check_request("net", inputs)
    with pytest.raises(ConfigError, match="net: queue_bytes 39 came, and one request has 40 bytes"):
        Limits(queue_bytes=39).check_request("net", inputs)
