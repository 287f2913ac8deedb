"""The devices that ship with the package, as subjects of the conformance suite."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Literal

import numpy as np

from repertory.models.formats import PortFormat
from repertory.models.pack import pack_memx
from repertory.models.pack_c7x import pack_c7x
from repertory.models.pack_xm_npu import pack_xm_npu
from repertory.models.program import Artifact
from repertory.models.sketch import sketch
from repertory.models.spec import TensorSpec
from repertory.transports.conformance import Subject
from repertory.transports.device import Device
from repertory.transports.families import connect
from repertory.transports.memory import InMemoryDevice
from repertory.transports.world import World
from repertory.transports.xm_npu.cl.npu import ClNpu
from repertory.transports.xm_npu.device import XmNpuDevice
from repertory.transports.xm_npu.hardware import Reading, reader
from repertory.transports.xm_npu.ioctl.generation import MMZ_LAYOUTS
from repertory.transports.xm_npu.ioctl.npu import NodeNpu
from repertory.transports.xm_npu.npu import Npu
from repertory.transports.xm_npu.simulator.board import Board
from repertory.transports.xm_npu.simulator.parameters import SimulatedNpu
from tests.xm_npu.cl.stub import open_stub

from .nets import network

__all__ = ["FOREIGN", "REAL_ONLY", "SKETCHES", "SUBJECTS", "VIRTUAL_ONLY", "in_memory"]


def _sketched(name: str) -> Artifact:
    """Sketch a model with every kind of port: several inputs, open extents, scalars, all sorts of dtypes."""
    inputs = [
        TensorSpec("image", ("N", 4, 6, 3), np.dtype("uint8")),
        TensorSpec("scale", (), np.dtype("float32")),
        TensorSpec("mask", (5,), np.dtype("bool")),
    ]
    outputs = [
        TensorSpec("boxes", (10, 4), np.dtype("float32")),
        TensorSpec("count", (), np.dtype("int64")),
        TensorSpec("half", (2, 3), np.dtype("float16")),
    ]
    return Artifact(f"{name}.json", sketch(name, inputs, outputs, service=0.0005))


SKETCHES = (_sketched("one"), _sketched("two"))
FOREIGN = Artifact("a picture", b"\x89PNG\r\n\x1a\n" + bytes(range(256)))


@cache
def _onnx(name: str) -> Artifact:
    return Artifact(f"{name}.onnx", network(name))


@cache
def _dfp(name: str, size: int, latency: float, form: PortFormat) -> Artifact:
    onnx = _onnx(name)
    port = {"rnet": "input_2", "onet": "input_3"}[name]
    shapes = {port: (1, size, size, 3)}
    data = pack_memx([(name, onnx.data)], shapes=shapes, port_format=form, latency=latency)
    return Artifact(f"{name}.dfp", data)


@cache
def _module(name: str, size: int, latency: float) -> Artifact:
    port = {"rnet": "input_2", "onet": "input_3"}[name]
    data = pack_c7x(name, _onnx(name).data, shapes={port: (1, size, size, 3)}, latency=latency)
    return Artifact(f"{name}.out", data)


@cache
def _xmm(name: str, size: int, latency: float) -> Artifact:
    port = {"rnet": "input_2", "onet": "input_3"}[name]
    data = pack_xm_npu(name, _onnx(name).data, shapes={port: (1, size, size, 3)}, latency=latency)
    return Artifact(f"{name}.xmm", data)


def _opener(address: str) -> Callable[[World], Device]:
    """Return what opens an address again and again; incarnations in one world share its machine."""
    made: dict[World, Callable[[], Device]] = {}

    def make(world: World) -> Device:
        if world not in made:
            made.clear()
            made[world] = connect(address, world)
        return made[world]()

    return make


def in_memory(world: World) -> InMemoryDevice:
    return InMemoryDevice(world, residents=2, bind_needs_idle=False)


def _nets() -> tuple[Artifact, Artifact]:
    return _onnx("rnet"), _onnx("onet")


def _dfps(latency: float = 0.001, form: PortFormat = PortFormat.FLOAT32) -> tuple[Artifact, Artifact]:
    return _dfp("rnet", 24, latency, form), _dfp("onet", 48, latency, form)


def _modules(latency: float = 0.001) -> tuple[Artifact, Artifact]:
    return _module("rnet", 24, latency), _module("onet", 48, latency)


def _xmms(latency: float = 0.001) -> tuple[Artifact, Artifact]:
    return _xmm("rnet", 24, latency), _xmm("onet", 48, latency)


def _bound(way: Callable[[Board, World], Npu], via: Literal["cl", "ioctl"]) -> Callable[[World], Device]:
    """Return what opens the real binding of an NPU over a double of what lies below it."""
    boards: dict[World, Board] = {}
    read = reader(Reading(via=via, simulated=True, batch=1, memory=96 << 20))

    def make(world: World) -> Device:
        if world not in boards:
            boards.clear()
            boards[world] = Board(world, SimulatedNpu(load_ms=1.0))
        board = boards[world]
        return XmNpuDevice(world, lambda: way(board, world), read, name="0", simulated=True)

    return make


def _library(board: Board, world: World) -> Npu:
    return ClNpu(open_stub(board.library()), world)


def _nodes(board: Board, world: World) -> Npu:
    return NodeNpu(world, board.kernel(), layout=MMZ_LAYOUTS["gk7206"])


SUBJECTS: Mapping[str, Callable[[], Subject]] = {
    "null": lambda: Subject(
        make=_opener("null://?window=8"), artifacts=SKETCHES, foreign=FOREIGN, answers=False
    ),
    "memory": lambda: Subject(make=in_memory, artifacts=SKETCHES, foreign=_onnx("rnet")),
    "sim": lambda: Subject(make=_opener("sim://?swap_ms=2"), artifacts=SKETCHES, foreign=FOREIGN),
    "sim-2": lambda: Subject(
        make=_opener("sim://?swap_ms=2&residents=2&window=3"), artifacts=SKETCHES, foreign=FOREIGN
    ),
    "sim+cpu": lambda: Subject(
        make=_opener("sim+cpu://?swap_ms=2&service_ms=0.5"), artifacts=_nets(), foreign=SKETCHES[0]
    ),
    "sim+memx": lambda: Subject(
        make=_opener("sim+memx://?swap_ms=2&window=4"), artifacts=_dfps(), foreign=_onnx("rnet")
    ),
    "sim+memx-shallow": lambda: Subject(
        make=_opener("sim+memx://?swap_ms=2&window=6&depth=2&reconfigure=false"),
        artifacts=_dfps(),
        foreign=SKETCHES[0],
    ),
    "sim+memx-compat": lambda: Subject(
        make=_opener("sim+memx://?swap_ms=2&window=4&profile=compat-2.11"), artifacts=_dfps(), foreign=FOREIGN
    ),
    "sim+memx-lent": lambda: Subject(
        make=_opener("sim+memx://?swap_ms=2&window=4&profile=compat-2.11"),
        artifacts=_dfps(form=PortFormat.GBF80),
        foreign=FOREIGN,
    ),
    "sim+memx-late": lambda: Subject(
        make=_opener("sim+memx://?swap_ms=2&window=3"), artifacts=_dfps(0.12), foreign=FOREIGN
    ),
    "sim+c7x-v2": lambda: Subject(
        make=_opener("sim+c7x://?wire=2&load_ms=2"), artifacts=_modules(), foreign=_onnx("rnet")
    ),
    "sim+c7x-v3": lambda: Subject(
        make=_opener("sim+c7x://?wire=3&load_ms=2&coherent=false"), artifacts=_modules(), foreign=_dfps()[0]
    ),
    "sim+c7x-single": lambda: Subject(
        make=_opener("sim+c7x://?wire=2&load_ms=2&first_fit=false&coherent=false"),
        artifacts=_modules(),
        foreign=FOREIGN,
    ),
    "sim+c7x-late": lambda: Subject(
        make=_opener("sim+c7x://?wire=3&load_ms=2"), artifacts=_modules(0.12), foreign=SKETCHES[0]
    ),
    "sim+xm-npu": lambda: Subject(
        make=_opener("sim+xm-npu://?load_ms=2"), artifacts=_xmms(), foreign=_modules()[0]
    ),
    "sim+xm-npu-ioctl": lambda: Subject(
        make=_opener("sim+xm-npu://?via=ioctl"), artifacts=_xmms(), foreign=FOREIGN
    ),
    "sim+xm-npu-late": lambda: Subject(
        make=_opener("sim+xm-npu://?outputs=cached&memory=library"), artifacts=_xmms(0.12), foreign=_dfps()[0]
    ),
    "sim+xm-npu-blocking": lambda: Subject(
        make=_opener("sim+xm-npu://?events=false"), artifacts=_xmms(), foreign=_onnx("rnet")
    ),
    "xm-npu-library": lambda: Subject(make=_bound(_library, "cl"), artifacts=_xmms(), foreign=SKETCHES[0]),
    "xm-npu-nodes": lambda: Subject(make=_bound(_nodes, "ioctl"), artifacts=_xmms(), foreign=FOREIGN),
    "cpu": lambda: Subject(
        make=_opener("cpu://?window=3"), artifacts=_nets(), foreign=SKETCHES[0], extents={"N": 2}
    ),
}
REAL_ONLY = frozenset({"cpu", "xm-npu-library", "xm-npu-nodes"})
VIRTUAL_ONLY = frozenset(
    {
        "null",
        "memory",
        "sim+cpu",
        "sim+memx-late",
        "sim+c7x-single",
        "sim+c7x-late",
        "sim+xm-npu-late",
        "sim+xm-npu-blocking",
    }
)
