"""Two real networks on a simulated NPU: labelled faces through bytes, and floats bit for bit."""

from __future__ import annotations

from functools import partial

import anyio
import numpy as np
import pytest

from repertory.models.pack_xm_npu import Format, pack_xm_npu
from repertory.models.xmm_tensor import NpuType
from repertory.runtime.demo.photos import network
from repertory.runtime.model import Model
from tests.integration.faces import FACES, PROBABILITIES, SIDES, crops, faces, normalised
from tests.integration.support import direct
from tests.runtime.support import open_virtual

from .boards import WAYS, BoardSource, Floats, Via

INPUTS = {"rnet": "input_2", "onet": "input_3"}
PIXELS = Format(NpuType.UINT8, 1 / 128, 127)
PROBABILITY = Format(NpuType.UINT8, 1 / 255, 0)

pytestmark = pytest.mark.virtual


def _packed(name: str, formats: dict[str, Format]) -> bytes:
    side = SIDES[name]
    return pack_xm_npu(name, network(name), shapes={INPUTS[name]: (1, side, side, 3)}, formats=formats)


async def _answers(source: BoardSource, files: dict[str, bytes]) -> dict[str, list[dict[str, Floats]]]:
    answers = {name: [dict[str, Floats]()] * len(crops()) for name in files}
    async with open_virtual(source) as rt:
        models = {name: await rt.load(data, name=name) for name, data in files.items()}

        async def ask(model: Model, number: int) -> None:
            array = normalised(crops()[number], SIDES[model.name])
            answers[model.name][number] = await model.infer(array)

        async with anyio.create_task_group() as tasks:
            for number in range(len(crops())):
                for model in models.values():
                    tasks.start_soon(partial(ask, model, number))
    source.check_clean()
    return answers


async def test_byte_ports_find_every_face(anyio_backend: object) -> None:
    """Pixels and probabilities go as bytes; callers see floats."""
    files = {name: _packed(name, {INPUTS[name]: PIXELS, PROBABILITIES[name]: PROBABILITY}) for name in SIDES}
    for name, answers in (await _answers(BoardSource("cl"), files)).items():
        found = faces(answers, name)
        assert sum(found[:FACES]) == FACES
        assert sum(found[FACES:]) <= 1
        values = np.concatenate([answer[PROBABILITIES[name]] for answer in answers])
        steps = values * np.float32(255)
        assert values.dtype == np.float32
        assert np.abs(steps - np.rint(steps)).max() < 1e-3, "they went through bytes"


@WAYS
async def test_float_ports_are_onnxruntimes_own_answers(anyio_backend: object, via: Via) -> None:
    files = {name: _packed(name, {}) for name in SIDES}
    for name, answers in (await _answers(BoardSource(via), files)).items():
        for crop, answer in zip(crops(), answers, strict=True):
            wanted = direct(network(name), normalised(crop, SIDES[name]))
            assert {port: answer[port].tobytes() for port in wanted} == {
                port: array.tobytes() for port, array in wanted.items()
            }
