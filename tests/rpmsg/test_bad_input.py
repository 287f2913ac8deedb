"""Bad input from end to end: a typed error that names what is wrong, and a DSP that serves on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from repertory.models.dynmod import ENTRY
from repertory.models.errors import (
    ArtifactError,
    DeviceBusy,
    DeviceError,
    DeviceLost,
    InvalidInput,
)
from repertory.models.pack_c7x import pack_c7x
from repertory.models.program import Artifact
from repertory.runtime.runtime import Runtime
from repertory.transports.rpmsg.program import prepare_dynmod
from repertory.transports.rpmsg.simulator.faults import Fault, Kind
from repertory.transports.rpmsg.simulator.parameters import SimulatedC7x
from tests.models.graphs import model, node, tensor
from tests.models.modules import SIDECAR, patched
from tests.models.modules import module as compiled
from tests.rpmsg.dsps import Board, answer, module
from tests.rpmsg.dsps import tensor as numbered
from tests.rpmsg.owner import bench, owned
from tests.rpmsg.simulator.modules import wide
from tests.runtime.support import open_virtual

pytestmark = pytest.mark.virtual
WIRES = pytest.mark.parametrize("wire", [2, 3])
MIB = 1 << 20


def board(wire: Any, **options: Any) -> Board:
    return Board(SimulatedC7x(wire=wire, answers="hash", load_ms=1.0, **options))


async def serves(rt: Runtime) -> bool:
    """Whether the DSP runs another model now."""
    found = await (await rt.load(module(), name="serves")).infer(numbered(5))
    return bool(found.tobytes() == answer(5))


def inputs(count: int) -> bytes:
    """Describe a module of so many inputs, in place of `SIDECAR`."""
    one = b'{"name": "x%d", "shape": [4], "dtype": "float32"}'
    told = b", ".join(one % place for place in range(count))
    return b'{"name": "net", "inputs": [' + told + b"]," + SIDECAR[SIDECAR.index(b'"outputs"') :]


TWIN = model([node("Identity", ["x"], ["y"])], [tensor("x", [4, 4])], [tensor("y", [4, 4])])
BARE = compiled(io=None)
FILES: dict[str, tuple[bytes, bytes | None, str]] = {
    "no ELF": (b"PNG", None, "no ELF file"),
    "another machine": (patched(BARE, 18, b"\x3e\0"), SIDECAR, r"machine 62.*any_machine"),
    "no entry": (compiled(io=None, entry="other"), SIDECAR, ENTRY),
    "129 inputs": (BARE, inputs(129), "129 inputs"),
    "7 axes": (BARE, SIDECAR.replace(b"[4, 4]", b"[1, 1, 1, 1, 1, 4, 4]"), r"net.*x.*7"),
    "bool": (BARE, SIDECAR.replace(b"float32", b"bool", 1), r"x.*bool"),
    "negative": (BARE, SIDECAR.replace(b"[4, 4]", b"[-4, 4]"), r"x.*-4"),
    "too large": (BARE, SIDECAR.replace(b"[4, 4]", b"[1000000000]"), r"x.*4000000000 bytes|4000000000"),
    "no sidecar": (BARE, None, "sidecar="),
}


@pytest.mark.parametrize("name", FILES)
async def test_files_that_no_dsp_could_run(anyio_backend: object, name: str) -> None:
    """Refused before anything is sent, for the simulated DSP and for a real one alike."""
    data, sidecar, text = FILES[name]
    subject = board(2)
    async with open_virtual(subject.source()) as rt:
        twin = None if name == "no sidecar" else TWIN
        with pytest.raises(ArtifactError, match=text if twin else "twin"):
            await rt.load(data, name="bad", sidecar=sidecar, twin=twin)
        assert subject.dsp.firmware.loaded == []
        assert await serves(rt)
    with pytest.raises(ArtifactError, match=text):
        prepare_dynmod(Artifact("lib0.out", data, sidecar=sidecar), simulated=False)
    assert (subject.dsp.firmware.loaded, subject.dsp.leaks) == ([], [])


@pytest.mark.parametrize(
    ("names", "kind", "axes", "text"),
    [
        (129, TensorProto.FLOAT, [4], "129"),
        (1, TensorProto.BOOL, [4], "bool"),
        (1, TensorProto.FLOAT, [1] * 7, "7"),
    ],
)
async def test_graphs_that_cannot_be_packed(
    anyio_backend: object, names: int, kind: int, axes: Sequence[int], text: str
) -> None:
    given = [f"x{place}" for place in range(names)]
    onnx = model(
        [node("Identity", ["x0"], ["y"])],
        [tensor(name, axes, kind) for name in given],
        [tensor("y", axes, kind)],
    )
    with pytest.raises(ArtifactError, match=text):
        pack_c7x("bad", onnx)


@WIRES
@pytest.mark.parametrize(
    ("extent", "count", "text"),
    [
        (60 * MIB, 1, r"do not fit into \d+"),
        (9 * MIB, 1, r"outputs do not fit into \d+"),
        (MIB, 9, "outputs"),
    ],
    ids=["inputs", "output", "outputs"],
)
async def test_tensors_that_do_not_fit_into_the_memory(
    anyio_backend: object, wire: int, extent: int, count: int, text: str
) -> None:
    subject = board(wire)
    async with open_virtual(subject.source()) as rt:
        assert await serves(rt)
        with pytest.raises(ArtifactError, match=text):
            await rt.load(wide(extent, count), name="huge", warm=True)
        assert len(subject.dsp.firmware.loaded) <= 1
        assert await serves_again(rt)
    assert (subject.dsp.firmware.loaded, subject.dsp.leaks, subject.incarnations) == ([], [], 1)


async def serves_again(rt: Runtime) -> bool:
    found = await rt.model("serves").infer(numbered(6))
    return bool(found.tobytes() == answer(6))


@WIRES
async def test_an_answer_that_claims_a_billion_outputs(anyio_backend: object, wire: int) -> None:
    subject = board(wire)
    async with open_virtual(subject.source()) as rt:
        net = await rt.load(module(), name="serves")
        subject.dsp.faults.on_reply = lambda _: Fault(Kind.MANY_OUTPUTS)
        with pytest.raises(
            DeviceError, match="the DSP's answer claims 1000000000 outputs, and 64 are possible"
        ):
            await net.infer(numbered(1))
        subject.dsp.faults.on_reply = None
        assert await serves_again(rt)
    assert subject.incarnations == 1


@WIRES
@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (np.zeros((1, 4), ">f4"), ">f4 came, float32 is wanted"),
        (np.zeros((1, 4), bool), "bool"),
        (np.zeros((1, 4), "f8"), "float64"),
        (np.zeros((1, 5), "f4"), r"5"),
        (np.zeros((1, 1, 1, 1, 1, 1, 4), "f4"), r"1, 4"),
    ],
    ids=["order", "bool", "f8", "shape", "axes"],
)
async def test_tensors_that_the_model_does_not_take(
    anyio_backend: object, wire: int, bad: Any, text: str
) -> None:
    subject = board(wire)
    async with open_virtual(subject.source()) as rt:
        net = await rt.load(module(), name="serves")
        with pytest.raises(InvalidInput, match=text):
            await net.infer(bad)
        assert await serves_again(rt)
    assert subject.dsp.firmware.jobs_failed == 0


@WIRES
async def test_strides_do_not_matter(anyio_backend: object, wire: int) -> None:
    subject = board(wire)
    async with open_virtual(subject.source()) as rt:
        net = await rt.load(module(), name="serves")
        backwards = np.arange(8, dtype=np.float32)[::-2].reshape(1, 4)
        found = await net.infer(backwards)
        same = await net.infer(np.ascontiguousarray(backwards))
        assert found.tobytes() == same.tobytes()


@pytest.mark.parametrize("version", [0x010000, 0x040000])
async def test_a_firmware_of_another_version(anyio_backend: object, version: int) -> None:
    subject = board(2, version=version)
    with pytest.raises(DeviceLost, match=f"speaks version {version >> 16}.0.0"):
        async with open_virtual(subject.source()):
            pass
    assert subject.dsp.leaks == []


@WIRES
async def test_a_second_client(anyio_backend: object, wire: int) -> None:
    async with bench(wire) as (owner, dsp):

        def second(world: Any) -> Any:
            return owned(world, dsp).device

        with pytest.raises(DeviceBusy, match="in use"):
            async with open_virtual(second):
                pass
        frame = owner.start(3)
        assert (await owner.end(frame)).outputs[0].tobytes() == answer(3)
