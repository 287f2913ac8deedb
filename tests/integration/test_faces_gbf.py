"""The labelled faces once more, over ports whose numbers are rounded on their way in and out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import anyio
import numpy as np
import pytest

from repertory.models.dfp import Dfp, write
from repertory.models.errors import InvalidInput
from repertory.models.formats import PortFormat
from repertory.models.pack import pack_memx
from repertory.models.port import Hpoc, Port, RangeConvert
from repertory.runtime.demo.photos import network
from repertory.runtime.model import Model
from repertory.runtime.opening import open_runtime
from repertory.transports.memx.simulator.parameters import SimulatedMx3

from .faces import FACES, SIDES, crops, faces, normalised
from .support import Floats, Machine, direct


def _dressed(name: str) -> bytes:
    """Pack with bytes of floats for inputs, as a range conversion makes them, and dummies in the outputs."""
    dfp = Dfp.read(pack_memx([(name, network(name))], port_format=PortFormat.GBF80_ROW))
    image: dict[str, Any] = {"format": PortFormat.RGB888, "range_convert": RangeConvert(1.0, 127.5)}
    return write(
        replace(
            dfp,
            inputs=tuple(replace(port, **image) for port in dfp.inputs),
            outputs=tuple(replace(port, hpoc=_dummies(port)) for port in dfp.outputs),
        )
    )


def _dummies(port: Port) -> Hpoc:
    height, width, z, channels = port.shape
    return Hpoc((height, width, z, channels + 3), (channels + 2, 0, 2))


def _rounding(form: PortFormat) -> Callable[[str], bytes]:
    return lambda name: pack_memx([(name, network(name))], port_format=form)


FILES = {"GBF80": _rounding(PortFormat.GBF80), "BF16": _rounding(PortFormat.BF16), "dressed": _dressed}


@pytest.mark.parametrize("packed", FILES)
async def test_rounded_ports_find_the_faces(packed: str, anyio_backend: object) -> None:
    files = {name: FILES[packed](name) for name in SIDES}
    inputs = {name: [normalised(crop, side) for crop in crops()] for name, side in SIDES.items()}
    answers = {name: [dict[str, Floats]()] * len(crops()) for name in SIDES}
    machine = Machine(SimulatedMx3())

    async def ask(model: Model, number: int) -> None:
        answers[model.name][number] = await model.infer(inputs[model.name][number])

    async with open_runtime([machine.group()]) as rt:
        models = [await rt.load(data) for data in files.values()]
        async with anyio.create_task_group() as tasks:
            for model in models:
                for number in range(len(crops())):
                    tasks.start_soon(partial(ask, model, number))

    for name in SIDES:
        found = faces(answers[name], name)
        assert sum(found[:FACES]) >= FACES - 1
        assert sum(found[FACES:]) <= 1
        for answer, wanted in zip(answers[name], _expected(packed, name), strict=True):
            assert answer.keys() == wanted.keys()
            assert all(answer[port].tobytes() == wanted[port].tobytes() for port in wanted)
    assert machine.library.faults == []


async def test_a_graph_of_floats_gets_the_numbers_of_an_images_bytes(anyio_backend: object) -> None:
    data = pack_memx([("rnet", network("rnet"))], formats={"input_2": PortFormat.RGB888})
    image = np.random.default_rng(2).integers(0, 256, (1, 24, 24, 3), np.uint8)
    async with open_runtime([Machine(SimulatedMx3()).group()]) as rt:
        model = await rt.load(data)
        answer = await model.infer(image)
        with pytest.raises(InvalidInput, match="uint8 is wanted"):
            await model.infer(image.astype(np.float32))
    wanted = direct(network("rnet"), image.astype(np.float32))
    assert all(np.array_equal(answer[port], wanted[port]) for port in wanted)


@cache
def _expected(packed: str, name: str) -> list[dict[str, Floats]]:
    """What onnxruntime answers to inputs that were rounded once, its outputs rounded too."""
    (ports,) = Dfp.read(FILES[packed](name)).networks
    expected: list[dict[str, Floats]] = []
    for crop in crops():
        made = direct(network(name), _rounded(ports.inputs[0], normalised(crop, SIDES[name])))
        expected.append({port.layer_name: _rounded(port, made[port.layer_name]) for port in ports.outputs})
    return expected


def _rounded(port: Port, array: Floats) -> Floats:
    frame = np.empty(port.nbytes, np.uint8)
    port.encode(array, frame)
    rounded: Floats = port.decode(frame)
    return rounded
