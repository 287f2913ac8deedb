"""Modules for simulated DSPs, made from ONNX graphs, and twins for modules that a compiler made."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from . import twin as twins
from .dynmod import (
    COMMENT_SECTION,
    ENTRY,
    IMPORTS_SECTION,
    IO_SECTION,
    IO_SYMBOL,
    MACHINE,
    MAX_SIZE,
    OS_ABI,
    PACKED_BY,
    TWIN_SECTION,
    WEIGHTS,
    Dynmod,
)
from .dynmod_io import DynmodIo
from .elf_sections import with_sections
from .elf_writer import Content, write_library
from .errors import ArtifactError
from .match import matched
from .onnx_extents import Extents, fixed_network
from .onnx_model import read_specs
from .program import Network
from .sidecar import check_network, read_sidecar, write_sidecar
from .twin import Twin, TwinNetwork

__all__ = ["attach_twin_c7x", "pack_c7x"]

_FIRMWARE: Final = "dsp_syms.out"
_IMPORTS: Final = ("memcpy", "memset")
_NO_CODE: Final = b"a simulation twin holds no code\0"


def pack_c7x(
    name: str,
    onnx: bytes,
    *,
    shapes: Mapping[str, Extents] = {},
    latency: float | None = None,
) -> bytes:
    """Write a module that simulated DSPs run and hardware cannot: the same bytes for the same arguments.

    It has all that a compiled one has but code: the name, the entry, what it imports, weights, the record
    of its tensors. There are no ports on this device: tensors go as the caller gives them.

    Args:
        name: of the network.
        onnx: a whole ONNX file; it lies in the module as it is.
        shapes: of inputs that the graph leaves open, by name. An open batch is 1 without one.
        latency: seconds that a run takes.

    Raises:
        ArtifactError: the graph is malformed or has what the wire cannot carry; says which tensor and why.
        ConfigError: a shape contradicts the graph or is of no input of it; or onnx or pyelftools is missing.
    """
    network = fixed_network(name, onnx, shapes)
    check_network(network)
    names = ([spec.name for spec in network.inputs], [spec.name for spec in network.outputs])
    twin = Twin(twins.VERSION, [TwinNetwork(name, onnx, *names, latency)])
    bare = write_library(
        "lib0.out",
        _contents(network, onnx),
        imports=_IMPORTS,
        needed=_FIRMWARE,
        machine=MACHINE,
        os_abi=OS_ABI,
    )
    named = {IMPORTS_SECTION: _FIRMWARE.encode() + b"\0", COMMENT_SECTION: PACKED_BY + b"\0"}
    return _checked(with_sections(bare, {**named, **_sections(network, twin)}), any_machine=False)


def attach_twin_c7x(
    data: bytes,
    onnx: bytes,
    *,
    sidecar: bytes | None = None,
    name: str | None = None,
    latency: float | None = None,
    any_machine: bool = False,
) -> bytes:
    """Put a graph into a module, compiled or packed, for simulated DSPs to run in its place.

    Args:
        data: the module.
        onnx: a graph that takes and gives what the callers of the module do. Its tensors are matched to the
            module's by name, or by their order where the names differ.
        sidecar: describes the module's tensors; without one an embedded sidecar counts, else what the graph
            itself takes and gives, with an open batch being 1.
        name: of the network where only the graph describes it; the module's SONAME without one.
        latency: seconds that a run takes.
        any_machine: as for `Dynmod.read`.

    Returns:
        The changed file. All that is loaded from it is as it was.

    Raises:
        ArtifactError: module, sidecar or graph is malformed, or they do not fit each other.
        ConfigError: onnx or pyelftools is not installed.
    """
    module = Dynmod.read(data, any_machine=any_machine)
    network = module.network if sidecar is None else read_sidecar(sidecar)
    if network is None:
        network = fixed_network(name or module.soname, onnx, {})
    graph = read_specs(onnx, f"twin of {network.name}")
    inputs, outputs = (
        matched(wanted, have, graph.name, what="tensor", bytes_as_floats=False)
        for wanted, have in ((network.inputs, graph.inputs), (network.outputs, graph.outputs))
    )
    twin = Twin(twins.VERSION, [TwinNetwork(network.name, onnx, inputs, outputs, latency)])
    return _checked(with_sections(data, _sections(network, twin)), any_machine=any_machine)


def _sections(network: Network, twin: Twin) -> dict[str, bytes]:
    return {TWIN_SECTION: twins.encode(twin), IO_SECTION: write_sidecar(network)}


def _contents(network: Network, onnx: bytes) -> dict[str, Content]:
    """The constants of a module: where code would be, weights, and the record of the tensors."""
    weights = hashlib.blake2b(onnx).digest()
    size = len(weights).to_bytes(4, "little")
    return {
        ".rodata": Content(_NO_CODE, {ENTRY: (0, len(_NO_CODE))}),
        ".rodata.weights": Content(
            weights + size,
            {
                f"{WEIGHTS}start": (0, len(weights)),
                f"{WEIGHTS}end": (len(weights), 0),
                f"{WEIGHTS}size": (len(weights), len(size)),
            },
        ),
        ".rodata.io": Content(DynmodIo.of(network).write(), {IO_SYMBOL: (0, DynmodIo.SIZE)}),
    }


def _checked(data: bytes, *, any_machine: bool) -> bytes:
    if len(data) > MAX_SIZE:
        raise ArtifactError(f"module: with its twin it has {len(data)} bytes, a DSP takes {MAX_SIZE}")
    Dynmod.read(data, any_machine=any_machine)
    return data
