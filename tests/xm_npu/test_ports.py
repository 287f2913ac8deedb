"""Ports of every kind from end to end: batches, memory reuse, loading ways, element types and padded rows."""

from __future__ import annotations

from functools import cache, partial
from typing import Any, Final

import anyio
import numpy as np
import pytest

from repertory.models.errors import ArtifactError, InvalidInput
from repertory.models.pack_xm_npu import Format, pack_xm_npu
from repertory.models.xmm_tensor import NpuType
from repertory.runtime.model import Model
from tests.models.graphs import model, node, tensor
from tests.runtime.support import open_virtual

from .boards import WAYS, WIDTH, BoardSource, Floats, Via, affine, answer

pytestmark = pytest.mark.virtual

RANGES: Final = {
    NpuType.INT8: (-128, 127),
    NpuType.UINT8: (0, 255),
    NpuType.INT16: (-32768, 32767),
    NpuType.UINT16: (0, 65535),
    NpuType.INT4: (-8, 7),
    NpuType.UINT10: (0, 1023),
    NpuType.UINT12: (0, 4095),
}
SCALE, ZERO = {True: 0.25, False: 0.125}, {True: 5, False: 3}  # of input and output


# -- batches and the ways of loading


@pytest.mark.parametrize(("batch", "outputs"), [(4, "uncached"), (32, "cached")])
async def test_each_row_of_a_batch_is_answered_as_if_it_were_alone(
    anyio_backend: object, batch: int, outputs: str
) -> None:
    source = BoardSource("cl", batch=batch, outputs=outputs)
    async with open_virtual(source) as rt:
        net = await rt.load(affine(3))
        assert net.inputs[0].shape == (batch, WIDTH)
        rows = np.random.default_rng(batch).standard_normal((6, batch, WIDTH), np.float32)
        found = [b""] * len(rows)

        async def ask(number: int) -> None:
            found[number] = (await net.infer(rows[number])).tobytes()

        async with anyio.create_task_group() as tasks:
            for number in range(len(rows)):
                tasks.start_soon(ask, number)
        with pytest.raises(InvalidInput, match=rf"\(1, {WIDTH}\) came.*{batch}, {WIDTH}"):
            await net.infer(rows[0, :1])
    assert found == [(block * np.float32(3)).tobytes() for block in rows]
    source.check_clean()


@cache
def _reusing(reuse: int) -> bytes:
    """(a + b, a * b), of 3 floats: sides of 28 bytes, with 4 that pad."""
    nodes = [node("Add", ["a", "b"], ["sum"]), node("Mul", ["a", "b"], ["product"])]
    inputs, outputs = [tensor(name, [1, 3]) for name in "ab"], [tensor(n, [1, 3]) for n in ("sum", "product")]
    return pack_xm_npu(f"reuse{reuse}", model(nodes, inputs, outputs), work=64, reuse=reuse)


@pytest.mark.parametrize(
    "options",
    [
        {"memory": "own"},
        {"memory": "library", "outputs": "cached"},
        {"memory": "own", "events": False, "outputs": "cached"},
    ],
    ids=str,
)
async def test_tensors_inside_the_workspace(anyio_backend: object, options: dict[str, Any]) -> None:
    """All types of reuse beside each other, in flight at once, for several loads of each."""
    source = BoardSource("cl", **options)
    draw = np.random.default_rng(1)
    async with open_virtual(source) as rt:
        nets = [await rt.load(_reusing(reuse), name=str(reuse)) for reuse in (0, 1, 2, 3)]

        async def ask(net: Model) -> None:
            for _ in range(5):
                a, b = (draw.standard_normal((1, 3), np.float32) for _ in "ab")
                found = await net.infer({"a": a, "b": b})
                assert found["sum"].tobytes() == (a + b).tobytes()
                assert found["product"].tobytes() == (a * b).tobytes()

        async with anyio.create_task_group() as tasks:
            for net in nets * 2:
                tasks.start_soon(ask, net)
    source.check_clean()


async def test_a_batch_inside_the_workspace_is_refused(anyio_backend: object) -> None:
    """Its size is told for one item, and nobody has told for more."""
    source = BoardSource("cl", batch=4)
    async with open_virtual(source) as rt:
        for reuse in (1, 2, 3):
            with pytest.raises(ArtifactError, match=f"batch of 4 and memory reuse of type {reuse}"):
                await rt.load(_reusing(reuse), name=str(reuse))
        assert (await rt.load(_reusing(0))).inputs[0].shape == (4, 3)
    source.check_clean()


# -- element types


@cache
def _doubling(kind: NpuType, layout: str, row: int) -> bytes:
    """y = 2 x, of an image with 3 channels."""
    shape = [1, 3, 4, 5] if layout == "NCHW" else [1, 4, 5, 3]
    onnx = model([node("Add", ["x", "x"], ["y"])], [tensor("x", shape)], [tensor("y", shape)])
    plain = kind is NpuType.FP16
    formats = {
        name: Format(kind) if plain else Format(kind, SCALE[name == "x"], ZERO[name == "x"]) for name in "xy"
    }
    return pack_xm_npu("doubling", onnx, formats=formats, row_alignment=row)


def _stored(real: Any, kind: NpuType, *, taken: bool) -> Any:
    """Return what an NPU stores for reals, by the vendor's rule."""
    low, high = RANGES[kind]
    return np.clip(np.rint(np.asarray(real, np.float64) / SCALE[taken]) + ZERO[taken], low, high)


def _oracle(real: Floats, kind: NpuType) -> tuple[Any, Any]:
    """Return the answer as integers and as reals."""
    if kind is NpuType.FP16:
        twice = (real.astype(np.float16).astype(np.float32) * 2).astype(np.float16)
        return twice, twice.astype(np.float32)
    seen = (_stored(real, kind, taken=True) - ZERO[True]) * SCALE[True]
    given = _stored(2 * seen, kind, taken=False)
    return given, (given - ZERO[False]) * SCALE[False]


@WAYS
async def test_element_types_against_an_oracle(anyio_backend: object, via: Via) -> None:
    """Reals beyond the range saturate; integers pass as they are; padding changes nothing."""
    source, draw = BoardSource(via, residents=32), np.random.default_rng(2)
    async with open_virtual(source) as rt:
        for kind in (*RANGES, NpuType.FP16):
            low, high = RANGES.get(kind, (-100, 100))
            for layout, row in (("NCHW", 1), ("NHWC", 16)):
                data, name = _doubling(kind, layout, row), f"{kind.name} {layout}"
                net = await rt.load(data, name=name)
                raw = await rt.load(data, name=f"{name} raw", outputs="native")
                (port,) = net.inputs
                assert port.layout == layout
                span = (high - low) * SCALE[True]
                shape = (1, 3, 4, 5) if layout == "NCHW" else (1, 4, 5, 3)
                real: Floats = draw.uniform(-span, span, shape).astype(np.float32)
                given = real if kind is not NpuType.FP16 else real.astype(np.float16)
                integers, reals = _oracle(real, kind)
                found, found_raw = await net.infer(given), await raw.infer(given)
                assert found.dtype == np.float32
                np.testing.assert_array_equal(found, reals.astype(np.float32), name)
                assert found_raw.dtype == port.dtype
                np.testing.assert_array_equal(found_raw, integers, f"{name} as it is stored")
                if kind is not NpuType.FP16:
                    same = await net.infer(_stored(real, kind, taken=True).astype(port.dtype))
                    np.testing.assert_array_equal(same, found, f"{name} from integers")
                await rt.unload(net.name)
                await rt.unload(raw.name)
    source.check_clean()


@pytest.mark.parametrize("row", [1, 16])
async def test_rows_of_a_batch_keep_their_padding(anyio_backend: object, row: int) -> None:
    source = BoardSource("cl", batch=2)
    async with open_virtual(source) as rt:
        net = await rt.load(_doubling(NpuType.UINT8, "NHWC", row))
        real = np.random.default_rng(row).uniform(0, 30, (2, 4, 5, 3)).astype(np.float32)
        _, reals = _oracle(real, NpuType.UINT8)
        np.testing.assert_array_equal(await net.infer(real), reals.astype(np.float32))
    source.check_clean()


async def test_bytes_in_the_wrong_layout_are_refused(anyio_backend: object) -> None:
    """HWC for an NCHW port, and the other way round: names the port and both shapes."""
    source = BoardSource("cl")
    async with open_virtual(source) as rt:
        planes = await rt.load(_doubling(NpuType.UINT8, "NCHW", 1), name="planes")
        pixels = await rt.load(_doubling(NpuType.UINT8, "NHWC", 1), name="pixels")
        for net, shape, text in (
            (planes, (1, 4, 5, 3), r"x: shape \(1, 4, 5, 3\) came.*\[1, 3, 4, 5\]"),
            (pixels, (1, 3, 4, 5), r"x: shape \(1, 3, 4, 5\) came.*\[1, 4, 5, 3\]"),
        ):
            with pytest.raises(InvalidInput, match=text):
                await net.infer(np.zeros(shape, np.uint8))
    source.check_clean()


@WAYS
async def test_integers_that_narrow_elements_cannot_hold(anyio_backend: object, via: Via) -> None:
    """Refused before they are queued, and nothing else of that model or of another is touched."""
    kinds = {NpuType.INT4: (np.int8, 8), NpuType.UINT10: (np.uint16, 1024), NpuType.UINT12: (np.uint16, 4096)}
    source = BoardSource(via)
    async with open_virtual(source) as rt:
        other = await rt.load(affine(2), name="other")
        for kind, (dtype, beyond) in kinds.items():
            graph = model([node("Identity", ["x"], ["y"])], [tensor("x", [1, 4])], [tensor("y", [1, 4])])
            for format in (Format(kind), Format(kind, 0.5, 1)):  # noqa: A001
                data = pack_xm_npu("narrow", graph, formats={"x": format})
                net = await rt.load(data, name=f"{kind.name} {format.scale}")
                with pytest.raises(InvalidInput, match=r"x.*holds -?\d+ to \d+"):
                    await net.infer(np.full((1, 4), beyond, dtype))
                most = (await net.infer(np.full((1, 4), beyond - 1, dtype)))[0, 0]
                assert most == (beyond - 1 - format.zero_point) * format.scale
        ask = partial(other.infer, np.ones((1, WIDTH), np.float32))
        assert (await ask()).tobytes() == answer(2, 1)
    assert source.incarnations == 1
    source.check_clean()
