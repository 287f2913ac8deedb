"""DFP files of version 6: what they tell about the networks of an MX3 device group.

Two numbers say where a port belongs, and what they mean together is our inference from public tools, not
from a specification: `model_index` is the network, counted over the whole file. `port_set` is the
configuration: networks that share one are resident together (co-mapped) and no swap lies between them; the
device swaps between different ones by `memx_download_model(..., model_idx=port_set, type=MODEL)`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from . import formats, mxpack
from . import twin as twins
from .dfp_wire import Document, WirePort, parse, unparse
from .errors import ArtifactError
from .mxpack import Buffer
from .port import Hpoc, Port, RangeConvert
from .program import Network
from .twin import Twin, TwinNetwork

__all__ = [
    "CHIPS",
    "PACKED_BY",
    "Dfp",
    "DfpNetwork",
    "Hpoc",
    "Port",
    "RangeConvert",
    "distinct",
    "with_twin",
    "write",
]

CHIPS = (1, 2, 3, 4, 8, 12, 16)
"""Numbers of chips that a device group can be configured to."""
PACKED_BY = "repertory-pack 1"
"""The compiler version of the files that this package makes."""

_VERSION = 6
_HEADER = struct.pack("<QB", _VERSION, 1)
_MAX_ENTRIES = 255  # the file counts its ports in a u8


@final
@dataclass(frozen=True, slots=True)
class DfpNetwork:
    """One network of a file.

    Attributes:
        name: unique in the file.
        configuration: the `port_set` of its ports: what to download before it can run.
        inputs: active ports, in the file's order.
        outputs: likewise.
        twin: what a simulated device computes for it, or None.
    """

    name: str
    configuration: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    twin: TwinNetwork | None = field(default=None, repr=False)

    @property
    def network(self) -> Network:
        """The network as the caller sees it.

        Raises:
            ArtifactError: a port has a format that no array stands for.
        """
        specs = (tuple(port.spec for port in ports) for ports in (self.inputs, self.outputs))
        return Network(self.name, *specs)


@final
@dataclass(frozen=True, slots=True)
class Dfp:
    """A DFP file without its compiled part; a `Dfp` that exists is valid.

    Attributes:
        models: names of the networks; unique.
        inputs: ports, inactive ones included.
        outputs: likewise.
        chips: what the group must be configured to, one of `CHIPS`.
        generation: of the chip: 2 Barton, 3 Cascade, 4 Cascade+ (an MX3), 5 Detroit.
        compiler_version: as the file has it.
        compile_timestamp: as the file has it.
        hw_size: bytes of the compiled part.
        twin: what a simulated device computes, or None.

    Raises:
        ArtifactError: the parts contradict each other or what a device can take.
    """

    models: tuple[str, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    chips: int
    generation: int = 4
    compiler_version: str = ""
    compile_timestamp: str = ""
    hw_size: int = 0
    twin: Twin | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.chips not in CHIPS:
            raise ArtifactError(f"DFP: made for {self.chips} chips; groups have {', '.join(map(str, CHIPS))}")
        if not self.models or len(set(self.models)) < len(self.models):
            raise ArtifactError(f"DFP: the networks {list(self.models)} are none or not distinct")
        _check_ports(self.inputs, "input", len(self.models))
        _check_ports(self.outputs, "output", len(self.models))
        _check_directions(self.inputs, self.outputs)
        networks = {network.name: network for network in self.networks}
        for twin in self.twin.networks if self.twin else ():
            _check_twin(twin, networks.get(twin.name))

    @classmethod
    def read(cls, data: Buffer) -> Dfp:
        """Read a file's content. The compiled part is measured and not looked into.

        Raises:
            ArtifactError: it is no DFP, is of a version other than 6, or no device could take it.
        """
        return _from_document(parse(_fields(data)))

    @property
    def is_twin(self) -> bool:
        """Whether the file was packed for simulated devices: no hardware can run it."""
        packed = self.compiler_version.startswith("repertory-pack")
        return self.twin is not None and self.hw_size == 0 and packed

    @property
    def networks(self) -> tuple[DfpNetwork, ...]:
        """The networks, in the order of `models`."""
        return tuple(self._network(index) for index in range(len(self.models)))

    def _network(self, index: int) -> DfpNetwork:
        name = self.models[index]
        inputs, outputs = (
            tuple(port for port in ports if port.active and port.model_index == index)
            for ports in (self.inputs, self.outputs)
        )
        if not inputs or not outputs:
            raise ArtifactError(f"DFP: network {name!r} has no active input, or no active output")
        configurations = sorted({port.port_set for port in (*inputs, *outputs)})
        if len(configurations) > 1:
            raise ArtifactError(f"DFP: the ports of network {name!r} lie in port sets {configurations}")
        twin = next((twin for twin in self.twin.networks if twin.name == name), None) if self.twin else None
        return DfpNetwork(name, configurations[0], inputs, outputs, twin)


def write(dfp: Dfp, *, hardware: bytes = b"") -> bytes:
    """Write a file that `Dfp.read` reads back as `dfp`.

    Args:
        dfp: what to write.
        hardware: the compiled part, of `dfp.hw_size` bytes.

    Raises:
        ArtifactError: the size of the compiled part differs, or a name has no form in the file.
    """
    if len(hardware) != dfp.hw_size:
        raise ArtifactError(f"DFP: {len(hardware)} bytes of compiled part came, {dfp.hw_size} belong to it")
    fields = {
        "models": list(dfp.models),
        "compile_timestamp": dfp.compile_timestamp,
        "compiler_version": dfp.compiler_version,
        "compiler_args": {},
        "dfp_sub_version": 0,
        "num_inports": len(dfp.inputs),
        "num_outports": len(dfp.outputs),
        "sim_meta": {"intgen": dfp.generation, "num_mpus": dfp.chips},
        "sim_dfp": _simulation(dfp.twin),
        "inport_info": [unparse(port, output=False) for port in dfp.inputs],
        "outport_info": [unparse(port, output=True) for port in dfp.outputs],
        "hw_dfp": hardware,
    }
    return _HEADER + mxpack.encode(fields)


def with_twin(data: Buffer, twin: Twin) -> bytes:
    """Put a twin into a file, in the place of what it has for simulators; all else stays as it is.

    Raises:
        ArtifactError: the file is no valid DFP, or the twin is none for its networks.
    """
    changed = _HEADER + mxpack.encode({**_fields(data), "sim_dfp": _simulation(twin)})
    Dfp.read(changed)
    return changed


def distinct(names: Iterable[str]) -> tuple[str, ...]:
    """Tell equal names apart: the second `detect` becomes `detect-2`."""
    taken: dict[str, None] = {}
    for name in names:
        candidate, count = name, 1
        while candidate in taken:
            count += 1
            candidate = f"{name}-{count}"
        taken[candidate] = None
    return tuple(taken)


def _fields(data: Buffer) -> dict[str, mxpack.Value]:
    head = bytes(data[: len(_HEADER)])
    if len(head) < len(_HEADER):
        raise ArtifactError("no DFP file: too short", offset=len(head))
    version = int.from_bytes(head[:8], "little")
    if version != _VERSION:
        raise ArtifactError(_foreign(version), offset=0)
    if head != _HEADER:
        raise ArtifactError(f"DFP: byte {head[8]:#04x} stands where 0x01 opens the dictionary", offset=8)
    return mxpack.decode(data, len(_HEADER))


def _foreign(version: int) -> str:
    if version == _VERSION - 1:
        return "DFP version 5 is the legacy format, which is not supported: compile the model again"
    if version < 1 << 16:
        return f"DFP version {version} is not known, {_VERSION} is: compile the model again"
    return "no DFP file: it does not begin with a version"


def _from_document(document: Document) -> Dfp:
    inputs = _ports(document.inport_info, document.num_inports, "num_inports")
    outputs = _ports(document.outport_info, document.num_outports, "num_outports")
    count = 1 + max((port.model_index for port in (*inputs, *outputs)), default=0)
    data = document.sim_dfp.data
    return Dfp(
        models=distinct(document.models or (f"model_{index}" for index in range(count))),
        inputs=inputs,
        outputs=outputs,
        chips=document.sim_meta.num_mpus,
        generation=document.sim_meta.intgen,
        compiler_version=_text(document.compiler_version),
        compile_timestamp=_text(document.compile_timestamp),
        hw_size=_size(document.hw_dfp),
        twin=twins.decode(data) if document.sim_dfp.enabled and twins.marked(data) else None,
    )


def _ports(wire: Sequence[WirePort], count: int | None, key: str) -> tuple[Port, ...]:
    """Make the ports; vendor tools differ in whether inactive ones are counted."""
    ports = tuple(port.port_of() for port in wire)
    if count not in (None, len(ports), sum(port.active for port in ports)):
        raise ArtifactError(f"DFP: {key} is {count}, {len(ports)} are described")
    return ports


def _check_ports(ports: Sequence[Port], direction: str, models: int) -> None:
    if len(ports) > _MAX_ENTRIES:
        raise ArtifactError(f"DFP: {len(ports)} {direction} ports, a file counts up to {_MAX_ENTRIES}")
    taken: set[tuple[int, int]] = set()
    for port in ports:
        if not port.active:
            continue
        if port.model_index >= models:
            raise ArtifactError(
                f"DFP: {direction} port {port.number} is of model {port.model_index} of {models}"
            )
        if (port.port_set, port.number) in taken:
            raise ArtifactError(f"DFP: {direction} port {port.number} is there twice in set {port.port_set}")
        taken.add((port.port_set, port.number))


def _check_directions(inputs: Iterable[Port], outputs: Iterable[Port]) -> None:
    """Refuse what only a port of the other direction has."""
    for port in inputs:
        if port.hpoc is not None:
            raise ArtifactError(f"DFP: input port {port.number} has an hpoc, which only outputs have")
    for port in outputs:
        if port.active and formats.input_only(port.format):
            raise ArtifactError(f"DFP: output port {port.number} is {port.format.name}, an input's format")
        if port.range_convert is not None:
            raise ArtifactError(f"DFP: output port {port.number} has a range_convert, which only inputs have")


def _check_twin(twin: TwinNetwork, network: DfpNetwork | None) -> None:
    if network is None:
        raise ArtifactError(f"DFP: its twin is for {twin.name!r}, which it does not hold")
    if (len(twin.inputs), len(twin.outputs)) != (len(network.inputs), len(network.outputs)):
        raise ArtifactError(f"DFP: the twin of {twin.name!r} has other ports than the network")


def _simulation(twin: Twin | None) -> dict[str, object]:
    return {"enabled": twin is not None, "data": twins.encode(twin) if twin else b""}


def _text(value: Any) -> str:
    return str(value) if isinstance(value, str | int | float) else ""


def _size(value: Any) -> int:
    if value is None:
        return 0
    if isinstance(value, memoryview | np.ndarray):
        return value.nbytes
    raise ArtifactError("DFP: hw_dfp holds no bytes")
