"""Bad input from end to end: a typed error that names what is wrong, and an NPU that serves on."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from repertory.models.errors import ArtifactError, ConfigError, DeviceError, DeviceLost, InvalidInput
from repertory.models.pack_xm_npu import Format, pack_xm_npu
from repertory.models.program import Artifact, Program
from repertory.models.xmm import Xmm
from repertory.models.xmm_tensor import NpuType, XmmTensor
from repertory.models.xmm_writer import redraft, write_xmm
from repertory.runtime.opening import open_runtime
from repertory.runtime.runtime import Runtime
from repertory.transports.real import RealWorld
from repertory.transports.virtual import VirtualWorld
from repertory.transports.xm_npu.errors import NpuRefusal
from repertory.transports.xm_npu.program import prepare_xmm
from repertory.transports.xm_npu.simulator.board import Board
from repertory.transports.xm_npu.simulator.library import SimulatedXmediaCl
from repertory.transports.xm_npu.simulator.parameters import SimulatedNpu
from tests.models.graphs import model, node, tensor
from tests.models.xmm_files import built, root
from tests.models.xmm_files import file as compiled
from tests.runtime.support import open_virtual

from .boards import WAYS, BoardSource, Via, affine, answer, question
from .cl.stub import StubLibrary
from .owner import CLOSE, Owner

virtual = pytest.mark.virtual
NEW_IN_C: Final = {
    "xmedia_cl_set_workspace_addr",
    "xmedia_cl_graph_query_model_info_from_file",
    "xmedia_cl_graph_get_private_data",
    "xmedia_cl_graph_get_private_data_from_file",
}


async def serves(rt: Runtime, factor: int = 7) -> bool:
    """Whether the NPU runs another model now."""
    name = f"times{factor}"
    found = await (await rt.load(affine(factor), name=name)).infer(question(5))
    await rt.unload(name)
    return bool(found.tobytes() == answer(factor, 5))


# -- files


def _patched(data: bytes, at: int, part: bytes) -> bytes:
    return data[:at] + part + data[at + len(part) :]


def _sized(data: bytes, body: int, tail: int) -> bytes:
    """Let a header tell other sizes, with the right checksum."""
    sizes = struct.pack("<II", body, tail)
    return _patched(data, 4, struct.pack("<I", zlib.crc32(sizes)) + sizes)


def _bent(**changes: Any) -> bytes:
    """Write the model with an input that is otherwise."""
    draft = redraft(Xmm.read(affine(2)))

    def bend(each: XmmTensor) -> XmmTensor:
        return replace(each, **changes) if each.id == draft.inputs[0] else each

    return write_xmm(replace(draft, tensors=tuple(bend(each) for each in draft.tensors)))


GOOD: Final = affine(2)
BODY, TAIL = struct.unpack_from("<II", GOOD, 8)
FILES: Final[dict[str, tuple[Callable[[], bytes], str]]] = {
    "nothing": (lambda: b"", "ZZZZ"),
    "another family": (lambda: b"\x7fELF" + bytes(100), "ZZZZ"),
    "magic": (lambda: _patched(GOOD, 0, b"ZZZY"), "ZZZZ"),
    "header": (lambda: GOOD[:12], "12 bytes"),
    "checksum": (lambda: _patched(GOOD, 4, bytes(4)), r"header's checksum"),
    "code": (lambda: _patched(GOOD, 40, b"?"), r"program.*checksum"),
    "parameters": (lambda: _patched(GOOD, BODY - 40, b"?"), r"constant.*checksum"),
    "cut": (lambda: GOOD[:-1], rf"{len(GOOD) - 1} bytes, the header tells {BODY} and a tail of {TAIL}"),
    "cut tail": (lambda: _sized(GOOD[:-40], BODY, TAIL - 40), r"\.xmm"),
    "longer": (lambda: GOOD + b"\0", f"{len(GOOD) + 1} bytes"),
    "type": (lambda: write_xmm(replace(redraft(Xmm.read(GOOD)), model_type=2)), r"model type 2.*-68"),
    "9 axes": (lambda: _bent(dims=(1,) * 8 + (16,), pitches=(64,) * 8 + (4,)), r"x.*9"),
    "no extent": (lambda: _bent(dims=(1, 0)), r"x.*0"),
    "no bytes": (lambda: _bent(size=0), r"x"),
    "too few bytes": (lambda: _bent(size=60), r"x.*60"),
    "no twin": (compiled, "carries no twin.*twin="),
}


@virtual
@WAYS
async def test_files_that_no_npu_could_run(anyio_backend: object, via: Via) -> None:
    """Refused before anything is loaded, for simulated NPUs and, but for the twin, for real ones alike."""
    source = BoardSource(via)
    async with open_virtual(source) as rt:
        for name, (make, text) in FILES.items():
            data = make()
            with pytest.raises(ArtifactError, match=text):
                await rt.load(data, name=name)
            if name != "no twin":
                with pytest.raises(ArtifactError, match=f"^bad.xmm: .*({text}|simulation twin)"):
                    prepare_xmm(Artifact("bad.xmm", data), simulated=False, via=via, budget=1 << 30)
        assert await serves(rt)
        (group,) = rt.statistics().groups.values()
        assert group.swaps == 1
    assert source.incarnations == 1
    source.check_clean()


@virtual
async def test_a_twin_that_does_not_fit(anyio_backend: object) -> None:
    other = model([node("Identity", ["x"], ["y"])], [tensor("x", [2, 4])], [tensor("y", [2, 4])])
    source = BoardSource("cl")
    async with open_virtual(source) as rt:
        for twin in (other, b"no graph"):
            with pytest.raises(ArtifactError, match="times2"):
                await rt.load(GOOD, name="bad", twin=twin)
        assert await serves(rt)
    source.check_clean()


# -- what the library refuses though the file is well


@virtual
@pytest.mark.parametrize("memory", ["own", "library"])
async def test_a_model_that_the_library_refuses(
    anyio_backend: object, memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An artifact's fault, with stage, call and status; what was taken for it is given back."""
    call = "xmedia_cl_graph_loadmodel_from_buff" + ("_withmem" if memory == "own" else "")

    async def refuse(_library: object, *_: object) -> tuple[int, int]:
        return 0, -70

    source = BoardSource("cl", memory=memory)
    async with open_virtual(source) as rt:
        assert await serves(rt, 3)
        with monkeypatch.context() as patch:
            patch.setattr(SimulatedXmediaCl, call, refuse)
            with pytest.raises(
                ArtifactError, match=rf"stage 5, {call}: UNSUPPORT_DYNAMIC_OUTPUT \(-70\)"
            ) as caught:
                await rt.load(affine(2), name="bad", warm=True)
        causes = [caught.value.__cause__, getattr(caught.value.__cause__, "__cause__", None)]
        (refusal,) = [each for each in causes if isinstance(each, NpuRefusal)]
        assert (refusal.stage, refusal.call, refusal.status) == (5, call, -70)
        assert await serves(rt)
    assert source.incarnations == 1
    source.check_clean()


# -- inputs


@cache
def _bytes() -> bytes:
    graph = model([node("Identity", ["x"], ["y"])], [tensor("x", [1, 4])], [tensor("y", [1, 4])])
    return pack_xm_npu("bytes", graph, formats={"x": Format(NpuType.UINT8, 0.5, 3)})


@virtual
@WAYS
async def test_inputs_that_a_model_does_not_take(anyio_backend: object, via: Via) -> None:
    nan = np.full((1, 4), np.nan, np.float32)
    given: list[tuple[Any, str]] = [
        (np.zeros((1, 5), np.uint8), r"x: shape \(1, 5\) came"),
        (np.zeros(4, np.uint8), r"x: shape \(4,\) came"),
        (np.zeros((1, 4), np.float64), r"x: dtype float64 came, uint8 or float32"),
        (np.zeros((1, 4), np.int8), "x: dtype int8 came"),
        (nan, "x: .*NaN|NaN"),
        ({"z": np.zeros((1, 4), np.uint8)}, "z"),
        ({}, "x"),
        ("picture.png", "x: a str came"),
    ]
    source = BoardSource(via)
    async with open_virtual(source) as rt:
        net = await rt.load(_bytes(), name="bytes")
        for value, text in given:
            with pytest.raises(InvalidInput, match=text):
                await net.infer(value)
        assert (await net.infer(np.full((1, 4), 7, np.uint8))).tolist() == [[2.0] * 4]
        assert await serves(rt)
    assert source.incarnations == 1
    source.check_clean()


# -- addresses, libraries and nodes


ADDRESSES: Final = {
    "sim+xm-npu://1": "'1' is no NPU; there is 0",
    "sim+xm-npu://?via=usb": "via",
    "sim+xm-npu://?via=ioctl&batch=2": "batch means something for via=cl only",
    "sim+xm-npu://?batch=33": "32",
    "sim+xm-npu://?batch=0": "1",
    "sim+xm-npu://?mmz_mb=0": "mmz_mb",
    "sim+xm-npu://?outputs=fast": "'fast'",
    "sim+xm-npu://?run_bound=0": "run_bound",
    "sim+xm-npu://?prio=1": "prio",
    "sim+xm-npu://?isolation=process": "virtual time",
    "xm-npu://npu.0": "'npu.0' is no node; use xm-npu:///dev/npu.0",
    "xm-npu://?via=ioctl": "32-bit Python.*use via=cl",
    "xm-npu://?devices=cpu": "'cpu'",
    "xm-npu://?residents=0": "residents",
    "xm-npu://?isolation=thread": "'thread'",
}


@virtual
async def test_addresses_that_are_refused(anyio_backend: object) -> None:
    for address, text in ADDRESSES.items():
        runtime = open_virtual(address) if address.startswith("sim") else open_runtime([address])
        with pytest.raises(ConfigError, match=text):
            await runtime.__aenter__()


@virtual
async def test_real_hardware_on_virtual_time(anyio_backend: object) -> None:
    with pytest.raises(ConfigError, match=r"xm-npu://: real hardware.*sim\+xm-npu"):
        await open_virtual("xm-npu://").__aenter__()


async def test_libraries_that_are_refused(anyio_backend: object, tmp_path: Path) -> None:
    """By the address, over C: the wrong revisions, no NPU behind it, and a model for simulators."""

    async def opened(lib: Path) -> None:
        async with open_runtime([f"xm-npu://?lib={lib}&lock_dir={tmp_path}"]) as rt:
            with pytest.raises(ArtifactError, match="simulation twin"):
                await rt.load(affine(2))

    async with RealWorld() as world:
        there, gone = Board(world), Board(world, SimulatedNpu(present=False))
        for name, without, text in (
            ("a", {"xmedia_cl_graph_set_inout"}, "revision A"),
            ("b", NEW_IN_C, "revision B"),
            ("foreign", {"xmedia_mmz_map"}, "lacks xmedia_mmz_map"),
        ):
            path = tmp_path / f"{name}.so"
            StubLibrary(path, there.library(), without=without)
            with pytest.raises(ConfigError, match=text):
                await opened(path)
        with pytest.raises(ConfigError, match=r"no CL library: looked for .*nowhere"):
            await opened(tmp_path / "nowhere")
        StubLibrary(tmp_path / "gone.so", gone.library())
        with pytest.raises(DeviceLost, match=r"stage 1, xmedia_sys_init: no NPU at /dev/npu\.0.*xm7206v11a"):
            await opened(tmp_path / "gone.so")
        StubLibrary(tmp_path / "c.so", there.library())
        await opened(tmp_path / "c.so")
        assert (there.leaks(), there.faults, gone.leaks()) == ([], [], [])


@virtual
@WAYS
async def test_a_forked_child_is_refused_and_takes_nothing_from_its_parent(
    anyio_backend: object, via: Via, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with VirtualWorld() as world:
        owner = Owner(BoardSource(via), world)
        await owner.open()
        await owner.load(2)
        board = owner.source.board
        held, made = board.mmz.used, list[str]()
        if via == "cl":
            pid = os.getpid()
            monkeypatch.setattr(os, "getpid", lambda: pid + 1)
        else:
            (kernel,) = board._kernels  # pyright: ignore[reportPrivateUsage]
            kernel.pid += 1
            made = kernel.calls
        before = len(made)
        text = r"opened by process \d+" if via == "cl" else r"/dev/\w+.* was opened by process \d+"
        with pytest.raises(DeviceError, match=text):
            await owner.load(3)
        await owner.device.close(bound=CLOSE)
        assert set(made[before:]) <= {"close"}
        assert via == "ioctl" or board.mmz.used == held


def test_a_batch_that_could_lie_in_two_ways_is_not_given_to_hardware() -> None:
    artifact = Artifact("net.xmm", compiled(built(root())))

    def read(**options: Any) -> Program:
        return prepare_xmm(artifact, simulated=False, via="cl", budget=1 << 24, **options)

    assert read(batch=1).networks[0].inputs[0].shape == (1, 2, 2, 3)
    with pytest.raises(ArtifactError, match=r"a batch of 4 of several tensors.*batch_layout=tensors"):
        read(batch=4)
    assert read(batch=4, batch_layout="tensors").networks[0].inputs[0].shape == (4, 2, 2, 3)
