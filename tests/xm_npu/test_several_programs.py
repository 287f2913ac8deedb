"""A file of two programs through the whole path: one run of a model is both, in their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b

import anyio
import msgspec
import numpy as np
import pytest

from repertory.models.npu_code import decode_code, encode_code
from repertory.models.pack_xm_npu import pack_xm_npu
from repertory.models.xmm import DIGEST_BYTES, Xmm
from repertory.models.xmm_tensor import NpuType, Region, XmmTensor
from repertory.models.xmm_writer import redraft, write_xmm
from tests.models.graphs import model, node, tensor
from tests.runtime.support import open_virtual

from .boards import WAYS, WIDTH, BoardSource, Via, answer, question

pytestmark = pytest.mark.virtual


def times(factor: int, outputs: Sequence[str]) -> bytes:
    """An ONNX graph whose outputs all are factor * x."""
    return model(
        [
            node("Constant", [], ["k"], value_float=float(factor)),
            *(node("Mul", ["x", "k"], [name]) for name in outputs),
        ],
        [tensor("x", [1, WIDTH])],
        [tensor(name, [1, WIDTH]) for name in outputs],
    )


def two_programs() -> bytes:
    """The first answers y = z = 2 x, then the second z = 3 x."""
    draft = redraft(Xmm.read(pack_xm_npu("two", times(2, ["y", "z"]), work=100)))
    second, at = times(3, ["z"]), -(-len(draft.params) // 16) * 16
    params = draft.params + bytes(at - len(draft.params)) + second
    graph = XmmTensor(
        "second", Region.CONST, at, (len(second),), (1,), NpuType.UINT8, len(second), id=len(draft.tensors)
    )
    draft = replace(draft, params=params, tensors=(*draft.tensors, graph))
    ((name, data),) = draft.codes
    code = decode_code(data)
    first = msgspec.structs.replace(code, sizes=draft.sizes)
    other = msgspec.structs.replace(
        first,
        graph=(at, len(second)),
        digest=blake2b(second, digest_size=DIGEST_BYTES).digest(),
        outputs=code.outputs[1:],
    )
    return write_xmm(replace(draft, codes=((name, encode_code(first)), ("more", encode_code(other)))))


@WAYS
async def test_both_programs_run_in_their_order(anyio_backend: object, via: Via) -> None:
    source, data = BoardSource(via), two_programs()
    assert [each.name for each in Xmm.read(data).programs] == ["main", "more"]
    found: dict[int, bytes] = {}
    async with open_virtual(source) as rt:
        net = await rt.load(data)

        async def ask(number: int) -> None:
            y, z = (await net.infer({"x": question(number)})).values()
            assert (y.dtype, z.shape) == (np.float32, (1, WIDTH))
            found[number] = y.tobytes() + z.tobytes()

        async with anyio.create_task_group() as tasks:
            for number in range(1, 9):
                tasks.start_soon(ask, number)
    assert found == {number: answer(2, number) + answer(3, number) for number in range(1, 9)}
    source.check_clean()
