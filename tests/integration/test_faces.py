"""Two real networks share one group: labelled faces, and onnxruntime's own answers bit for bit."""

from __future__ import annotations

from functools import partial

import anyio
import numpy as np
import pytest

from repertory.models.pack import pack_memx
from repertory.runtime.demo.photos import network
from repertory.runtime.model import Model
from repertory.runtime.opening import open_runtime
from repertory.runtime.statistics import Statistics
from repertory.transports.memx.simulator.parameters import SimulatedMx3

from .faces import FACES, SIDES, crops, faces, normalised
from .support import Floats, Machine, direct

IN_FLIGHT = 200


def _unsettled(statistics: Statistics) -> int:
    return sum(model.waiting + model.in_flight for model in statistics.models.values())


async def test_two_networks_find_every_face_at_once(anyio_backend: object) -> None:
    inputs = {name: [normalised(crop, side) for crop in crops()] for name, side in SIDES.items()}
    answers = {name: [dict[str, Floats]()] * len(crops()) for name in SIDES}
    machine = Machine(SimulatedMx3())
    peak = 0

    async with open_runtime([machine.group()]) as rt:
        models = {name: await rt.load(pack_memx([(name, network(name))])) for name in SIDES}
        limiter = anyio.Semaphore(IN_FLIGHT)

        async def ask(model: Model, number: int) -> None:
            nonlocal peak
            async with limiter:
                answers[model.name][number] = await model.infer(inputs[model.name][number])
                peak = max(peak, _unsettled(rt.statistics()) + 1)

        async with anyio.create_task_group() as tasks:
            for number in range(len(crops())):
                for model in models.values():
                    tasks.start_soon(partial(ask, model, number))
        statistics = rt.statistics()

    for name in SIDES:
        found = faces(answers[name], name)
        assert sum(found[:FACES]) == FACES
        assert sum(found[FACES:]) == 0
        for array, answer in zip(inputs[name], answers[name], strict=True):
            wanted = direct(network(name), array)
            assert answer.keys() == wanted.keys()
            assert all(answer[port].tobytes() == wanted[port].tobytes() for port in wanted)
    assert peak == IN_FLIGHT
    assert statistics.groups["group 0"].swaps > 1
    assert machine.library.faults == []


@pytest.mark.parametrize("name", SIDES)
def test_the_oracle_depends_on_the_preprocessing(name: str) -> None:
    unswapped = [normalised(crop, SIDES[name]).transpose(0, 2, 1, 3) for crop in crops()[:FACES]]
    answers = [direct(network(name), np.ascontiguousarray(crop)) for crop in unswapped]
    assert sum(faces(answers, name)) < FACES // 2
