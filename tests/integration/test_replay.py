"""The camera load of the benchmark in virtual time: the same seed gives the same trace."""

from __future__ import annotations

import random
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import anyio
import pytest

from repertory.models.errors import DeadlineExceeded
from repertory.runtime.model import Model
from repertory.runtime.opening import open_runtime
from repertory.transports.virtual import VirtualWorld, virtual_options
from tests.determinism import seeded_trio
from tests.memx.files import Net, dfp

from .support import image

SECONDS = 20.0


@pytest.fixture(scope="module")
def load() -> Any:
    """benchmarks/camera_load.py, which is no package's."""
    file = Path(__file__).parents[2] / "benchmarks" / "camera_load.py"
    spec = spec_from_file_location("camera_load", file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["camera_load"] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_seed_replays_the_same_trace(load: Any, backend: str) -> None:
    with seeded_trio(0):  # fails loudly where the switch has gone; the load sets its own seed
        first, second = [load.simulate(backend, seed=1, seconds=SECONDS, keep=True) for _ in range(2)]
    assert first.ends.total() == 3 * 30 * SECONDS
    assert first.swaps > 10 * SECONDS
    differing = [pair for pair in zip(first.lines, second.lines, strict=True) if pair[0] != pair[1]]
    assert differing[:3] == []
    assert first.digest == second.digest


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_another_seed_gives_another_trace(load: Any, backend: str) -> None:
    first, second = [load.simulate(backend, seed=seed, seconds=2.0) for seed in (1, 2)]
    assert first.digest != second.digest
    assert first.ends.total() == second.ends.total()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_load_with_late_frames_replays_too(
    load: Any, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "TIMEOUT", 0.1)
    first, second = [load.simulate(backend, seed=3, seconds=5.0, keep=True) for _ in range(2)]
    assert first.ends["DeadlineExceeded"] + first.ends["DeadlineUnreachable"] > 30
    assert first.ends["answered"] > 50
    assert first.lines == second.lines


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_frames_that_are_late_at_once_replay(backend: str) -> None:
    orders: list[list[int]] = []
    for _ in range(2):
        garbage = [object() for _ in range(random.randrange(1000))]  # objects lie elsewhere in the next run
        with seeded_trio(5):
            orders.append(anyio.run(_late_at_once, backend=backend, backend_options=virtual_options(backend)))
        del garbage
    assert sorted(orders[0]) == list(range(200))
    assert orders[0] == orders[1]


async def _late_at_once() -> list[int]:
    """Return the order in which 200 callers of a slow network learn that their common deadline has come."""
    order: list[int] = []

    async def ask(model: Model, number: int) -> None:
        with pytest.raises(DeadlineExceeded):
            await model.infer(image(number), timeout=0.5)
        order.append(number)

    async with open_runtime(["sim+memx://0"], world=VirtualWorld()) as rt:
        model = await rt.load(dfp(Net(latency=10.0, outputs=1)))
        async with anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(ask, model, number)
    return order
