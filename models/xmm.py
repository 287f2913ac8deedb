"""Models for an NPU (`.xmm`, and `.bin` by another name): a header, code, parameters, and a tail that tells.

All is little-endian. The layout was measured in public files and is described by nobody. Every length is held
against the file, every checksum against its bytes, and reading costs a small multiple of the file's size.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Final, final

from .errors import ArtifactError
from .npu_code import CodeTensor, NpuCode, Sizes, decode_code, is_twin_code
from .xmm_header import XmmHeader
from .xmm_parts import (
    INFO,
    INFO_FIELDS,
    INPUTS,
    OUTPUTS,
    PRIVATE,
    REUSE,
    ROOT_FIELDS,
    Placed,
    XmmNode,
    XmmProgram,
    read_nodes,
    read_programs,
    read_tensors,
)
from .xmm_tail import Fields, Tail
from .xmm_tensor import Region, XmmTensor, aligned

__all__ = ["DIGEST_BYTES", "HIGH", "MAX_REUSE", "Xmm", "extent"]

HIGH: Final = 3
"""The type of models that an NPU of this family runs; the library answers -68 to others."""
MAX_REUSE: Final = 3
"""The last type of memory reuse."""
DIGEST_BYTES: Final = 16
"""Of the graph that stands for a model's computation, in its code."""

_REGION = 16  # bytes to which regions are rounded in a program's total
_CHECKED = 8  # times the file's size may be read for checksums: stretches may be shared


@final
@dataclass(frozen=True, slots=True)
class Xmm:
    """A model; one that exists passed every check.

    Attributes:
        data: the whole file.
        name: of the model; may be empty.
        version: of its compiler, as the file has it.
        model_type: as the file has it; only `HIGH` runs.
        programs: in the file's order, 1 to 4.
        tensors: all of them, in the file's order.
        inputs: in the order of a run.
        outputs: likewise.
        nodes: operators.
        params: offset and size, in the file, of the region of parameters.
        reuse: of memory: 0 where inputs and outputs lie apart from the workspace; 1, 2, 3 where the
            inputs, the outputs or both lie in it. 0 for compiled files, where it is not known how they tell.
        private_data: or None; likewise only of files for simulators.
        twin: what a simulated NPU computes, or None.
    """

    data: bytes = field(repr=False)
    name: str
    version: str
    model_type: int
    programs: tuple[XmmProgram, ...]
    tensors: tuple[XmmTensor, ...] = field(repr=False)
    inputs: tuple[XmmTensor, ...]
    outputs: tuple[XmmTensor, ...]
    nodes: tuple[XmmNode, ...] = field(repr=False)
    params: tuple[int, int]
    reuse: int = 0
    private_data: bytes | None = field(default=None, repr=False)
    twin: NpuCode | None = field(default=None, repr=False)

    @classmethod
    def read(cls, data: bytes) -> Xmm:
        """Read a file's content.

        Raises:
            ArtifactError: it is no model, or contradicts itself.
            ConfigError: flatbuffers is not installed.
        """
        header = XmmHeader.read(data)
        root = Tail(data[header.body :], header.body).root(ROOT_FIELDS)
        info = root.table(INFO, INFO_FIELDS)
        programs, placed = read_programs(root), read_tensors(root)
        params = _params(placed, header.body)
        _check_programs(data, programs, header.body)
        _check_constants(data, placed)
        tensors = tuple(each.tensor for each in placed)
        made = cls(
            data,
            info.text(0) if info else "",
            info.text(1) if info else "",
            info.u32(2) if info else 0,
            programs,
            tensors,
            _chosen(tensors, root.numbers(INPUTS), Region.INPUT),
            _chosen(tensors, root.numbers(OUTPUTS), Region.OUTPUT),
            read_nodes(root),
            params,
        )
        return made._with_twin(root) if is_twin_code(made.code(programs[0])) else made

    @property
    def is_twin(self) -> bool:
        """Whether the file was packed for simulated NPUs: no hardware can run it."""
        return self.twin is not None

    @property
    def sizes(self) -> Sizes:
        """Bytes of the regions: how far the tensors of each reach."""
        work, inputs, outputs = (
            extent(each for each in self.tensors if each.region == region)
            for region in (Region.WORKSPACE, Region.INPUT, Region.OUTPUT)
        )
        return Sizes(self.params[1], work, inputs, outputs)

    @property
    def weightsize(self) -> int:
        """Bytes of parameters, as querysize tells; INFERRED: not rounded."""
        return self.params[1]

    @property
    def worksize(self) -> int:
        """Bytes of workspace, as querysize tells, with what lies in it; INFERRED: not rounded."""
        sizes = self.sizes
        inside = {1: (sizes.inputs,), 2: (sizes.outputs,), 3: (sizes.inputs, sizes.outputs)}
        return max(sizes.work, *inside.get(self.reuse, (0,)))

    @property
    def total(self) -> int:
        """Bytes of memory that a run takes beside its code: the regions, each rounded up to 16."""
        sizes = self.sizes
        return sum(aligned(each, _REGION) for each in (sizes.params, sizes.work, sizes.inputs, sizes.outputs))

    def code(self, program: XmmProgram) -> memoryview:
        """Return a program's instructions."""
        return memoryview(self.data)[program.offset : program.offset + program.size]

    def parameters(self) -> memoryview:
        """Return the region of parameters as it lies in the file."""
        offset, size = self.params
        return memoryview(self.data)[offset : offset + size]

    def _with_twin(self, root: Fields) -> Xmm:
        """Read what only files of this package tell, and hold the code against the tail."""
        twin = decode_code(self.code(self.programs[0]))
        offset, size = twin.graph
        graph = self.parameters()[offset : offset + size]
        if len(graph) != size or blake2b(graph, digest_size=DIGEST_BYTES).digest() != twin.digest:
            raise ArtifactError(".xmm: the graph of its twin is not the one that its code names")
        sides = ((twin.inputs, self.inputs), (twin.outputs, self.outputs))
        if twin.sizes != self.sizes or not all(_same(told, tensors) for told, tensors in sides):
            raise ArtifactError(".xmm: its code was made for other tensors than it has")
        reuse = root.u8(REUSE)
        if reuse > MAX_REUSE:
            raise ArtifactError(f".xmm: memory reuse of type {reuse}, 0 to {MAX_REUSE} are known")
        return replace(self, twin=twin, reuse=reuse, private_data=root.octets(PRIVATE) or None)


def extent(tensors: Iterable[XmmTensor]) -> int:
    """Bytes of a region: how far its tensors reach."""
    return max((each.offset + each.size for each in tensors), default=0)


def _params(placed: Sequence[Placed], body: int) -> tuple[int, int]:
    """Find the region of parameters in the file, which lies there as in memory."""
    constants = [each for each in placed if each.tensor.region == Region.CONST and each.tensor.size]
    if not constants:
        return body, 0
    size = extent(each.tensor for each in constants)
    starts = {each.at - each.tensor.offset for each in constants}
    start = starts.pop()
    if starts or start < XmmHeader.SIZE or start + size > body:
        raise ArtifactError(f".xmm: its constants are no stretch of {size} bytes before the tail")
    return start, size


def _check_programs(data: bytes, programs: Sequence[XmmProgram], body: int) -> None:
    for program in programs:
        what = f"program {program.name!r}"
        if program.offset < XmmHeader.SIZE or program.offset + program.size > body:
            raise ArtifactError(
                f".xmm: {what}: {program.size} bytes at {program.offset} lie outside the code"
            )
        _check_crc(data, program.offset, program.size, program.crc, what)


def _check_constants(data: bytes, placed: Sequence[Placed]) -> None:
    left = _CHECKED * len(data)
    for each in placed:
        if each.tensor.region != Region.CONST or not each.tensor.size:
            continue
        left -= each.tensor.size
        if left < 0:
            raise ArtifactError(".xmm: its constants lie on the same bytes too often")
        _check_crc(data, each.at, each.tensor.size, each.crc, f"constant {each.tensor.name!r}")


def _check_crc(data: bytes, offset: int, size: int, crc: int, what: str) -> None:
    if (actual := zlib.crc32(memoryview(data)[offset : offset + size])) != crc:
        raise ArtifactError(
            f".xmm: {what}: its checksum is {actual:#010x}, it tells {crc:#010x}", offset=offset
        )


def _chosen(tensors: Sequence[XmmTensor], ids: Sequence[int], region: Region) -> tuple[XmmTensor, ...]:
    """Find the tensors that the file names as those of one side."""
    there = [each for each in tensors if each.region == region]
    known: Mapping[int, XmmTensor] = {each.id: each for each in there}
    if len(known) < len(there):
        raise ArtifactError(f".xmm: two of its {region.name.lower()}s have the same number")
    if not ids or len(set(ids)) < len(ids) or not set(ids) <= set(known):
        raise ArtifactError(
            f".xmm: it names {list(ids)[:8]} as its {region.name.lower()}s, and has {len(known)}"
        )
    return tuple(known[each] for each in ids)


def _same(told: Sequence[CodeTensor], tensors: Sequence[XmmTensor]) -> bool:
    return len(told) == len(tensors) and all(
        each.tensor(tensor.region) == replace(tensor, name=each.graph_name, id=0)
        for each, tensor in zip(told, tensors, strict=True)
    )
