"""One scheduler over all families at once: a few seconds of the benchmark's load."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from repertory.transports.real import RealWorld
from repertory.transports.virtual import VirtualWorld
from tests.determinism import seeded_trio

SECONDS = 1.0


@pytest.fixture(scope="module")
def load() -> Any:
    """benchmarks/mixed_cameras.py, which is no package's."""
    file = Path(__file__).parents[2] / "benchmarks" / "mixed_cameras.py"
    spec = spec_from_file_location("mixed_cameras", file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["mixed_cameras"] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _run(load: Any, backend: str, world: Any, *, seed: int) -> dict[str, Any]:
    """Serve the load; it reconciles, or raises, and checks every answer."""
    with seeded_trio(seed) if backend == "trio" else nullcontext():
        run = load.measure(world, load.arrivals(SECONDS, seed), backend=backend)
    summary: dict[str, Any] = run.summary()
    assert summary["requests"] > 70
    assert summary["looks"] > 1
    served = run.statistics.models
    assert all(served[name].answered for name in load.LOADS), "of every family"
    assert len(served["detect"].groups) == 2
    assert [group for group, swaps in summary["swaps"].items() if swaps < 2] == list(load.HOST)
    del summary["real_seconds"]
    return summary


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_all_families_in_virtual_time_replay(load: Any, backend: str) -> None:
    first, second = [_run(load, backend, VirtualWorld, seed=1) for _ in range(2)]
    assert first == second
    assert load.arrivals(SECONDS, 2) != load.arrivals(SECONDS, 1)


@pytest.mark.xdist_group("clock")
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_all_families_in_real_time_reconcile(load: Any, backend: str) -> None:
    _run(load, backend, RealWorld, seed=1)


def test_a_lost_answer_does_not_reconcile(load: Any) -> None:
    run = load.measure(VirtualWorld, load.arrivals(0.5, 1))
    run.ends["detect"]["on time"] -= 1
    with pytest.raises(AssertionError, match="detect"):
        load.reconcile(run)
