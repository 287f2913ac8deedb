"""Models for simulated NPUs, made from ONNX graphs, and twins for models that a compiler made."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

import numpy as np

from .errors import ArtifactError, ConfigError
from .onnx_extents import Extents, fixed_network
from .onnx_model import read_specs
from .program import Network
from .spec import Dim, TensorSpec
from .xmm import MAX_REUSE, Xmm
from .xmm_layout import layout, packed_pitches, packed_size
from .xmm_numbers import native_dtype
from .xmm_tensor import MAX_DIMS, NpuType, Region, XmmTensor, packed_offsets
from .xmm_twin import Named, twin_draft
from .xmm_writer import Draft, redraft, write_xmm

__all__ = ["CLOCK_HZ", "Format", "attach_twin_xm_npu", "pack_xm_npu"]

CLOCK_HZ: Final = 450_000_000
"""Of the NPU's clock, to count a latency in cycles: the rate at which a sibling was measured."""
_DEFAULTS: Final = {
    "float32": NpuType.FP32,
    "float16": NpuType.FP16,
    "int8": NpuType.INT8,
    "uint8": NpuType.UINT8,
    "int16": NpuType.INT16,
    "uint16": NpuType.UINT16,
    "int32": NpuType.INT32,
}
_MAX_NAME = 128
_MAX_ROW = 4096
_MAX_CYCLES = 1 << 48
_ZERO_POINTS = range(-(1 << 31), 1 << 31)


@final
@dataclass(frozen=True, slots=True)
class Format:
    """How a tensor's numbers lie in memory: real = (stored - zero_point) * scale.

    Attributes:
        type: of an element.
        scale: kept in float32. 1 and a zero point of 0 mean plain numbers; floats have no other.
        zero_point: likewise, a signed number of 32 bits.

    Raises:
        ConfigError: such a format is not possible.
    """

    type: NpuType
    scale: float = 1.0
    zero_point: int = 0

    def __post_init__(self) -> None:
        with np.errstate(over="ignore", under="ignore"):
            object.__setattr__(self, "scale", float(np.float32(self.scale)))
        if not 0 < self.scale < math.inf:
            raise ConfigError(f"a scale of {self.scale:g}: it is to be finite and above 0, in float32")
        if self.zero_point not in _ZERO_POINTS:
            raise ConfigError(f"a zero point of {self.zero_point}: 32 bits hold it")
        if native_dtype(self.type).kind == "f" and (self.scale, self.zero_point) != (1, 0):
            raise ConfigError(f"{self.type.name} is not quantised: it has no scale and no zero point")


def pack_xm_npu(
    name: str,
    onnx: bytes,
    *,
    shapes: Mapping[str, Extents] = {},
    formats: Mapping[str, Format] = {},
    format: Format | None = None,  # noqa: A002
    latency: float | None = None,
    clock_hz: float = CLOCK_HZ,
    work: int = 0,
    reuse: int = 0,
    private_data: bytes | None = None,
    row_alignment: int = 1,
    pitches: Mapping[str, Extents] = {},
) -> bytes:
    """Write a model that simulated NPUs run and hardware cannot: the same bytes for the same arguments.

    It is laid out as compiled ones are; where their code would be it says what to compute, and the graph is a
    constant among its parameters.

    Args:
        name: of the network, up to 128 printable characters.
        onnx: a whole ONNX file; it lies in the model as it is.
        shapes: of inputs that the graph leaves open, by name. An open batch is 1 without one.
        formats: of inputs and outputs, by name. The graph gets, and gives, the reals that stored integers
            stand for.
        format: of float32 tensors that `formats` does not name; FP32 without one. Others are as the graph
            has them.
        latency: seconds that a run takes.
        clock_hz: of the NPU's clock, in which the latency is counted.
        work: bytes of workspace.
        reuse: type of memory reuse: 1, 2, 3 where the inputs, the outputs or both lie in the workspace.
        private_data: what the library hands to the application, or None.
        row_alignment: bytes to which rows are padded, 1 to 4096.
        pitches: of inputs and outputs, by name, instead: bytes between neighbours along each axis.

    Raises:
        ArtifactError: the graph is malformed, or has what an NPU's tensor cannot be; says which and why.
        ConfigError: an option contradicts the graph or is of no tensor of it; or onnx or flatbuffers is
            missing.
    """
    _check_bounds(row_alignment=row_alignment, reuse=reuse, work=work, private_data=private_data)
    network = fixed_network(_valid(name), onnx, shapes)
    _check_names(network, (*formats, *pitches))
    sides = [
        _placed([_tensor(spec, formats, format, pitches, row_alignment) for spec in specs], region)
        for specs, region in ((network.inputs, Region.INPUT), (network.outputs, Region.OUTPUT))
    ]
    draft = twin_draft(name, onnx, *sides, work=_workspace(work), cycles=_cycles(latency, clock_hz))
    return _checked(replace(draft, reuse=reuse, private_data=private_data))


def attach_twin_xm_npu(
    data: bytes,
    onnx: bytes,
    *,
    name: str = "",
    latency: float | None = None,
    clock_hz: float = CLOCK_HZ,
) -> bytes:
    """Make of a model, compiled or packed, one that simulated NPUs run and hardware cannot.

    Inputs, outputs and workspace stay as they are; code and parameters give way to the graph.

    Args:
        data: the model.
        onnx: a graph whose tensors have the extents of the model's, apart from extents of 1; they are matched
            by name, or by their order where the names differ. Their dtypes may be any.
        name: of the network, where the model has none.
        latency: seconds that a run takes.
        clock_hz: of the NPU's clock, in which the latency is counted.

    Raises:
        ArtifactError: model or graph is malformed, or they do not fit each other.
        ConfigError: onnxruntime or flatbuffers is not installed, or an option is not possible.
    """
    xmm = Xmm.read(data)
    graph = read_specs(onnx, f"twin of {xmm.name or name or 'the model'}")
    sides = [
        list(zip(_matched(tensors, specs, graph.name), tensors, strict=True))
        for tensors, specs in ((xmm.inputs, graph.inputs), (xmm.outputs, graph.outputs))
    ]
    work = [each for each in xmm.tensors if each.region == Region.WORKSPACE]
    cycles = _cycles(latency, clock_hz)
    if cycles is None and xmm.twin is not None:
        cycles = xmm.twin.cycles
    draft = twin_draft(xmm.name or name, onnx, *sides, work=work, cycles=cycles)
    kept = redraft(xmm)
    return _checked(
        replace(draft, reuse=kept.reuse, private_data=kept.private_data, model_type=kept.model_type)
    )


def _checked(draft: Draft) -> bytes:
    data = write_xmm(draft)
    Xmm.read(data)
    return data


def _valid(name: str) -> str:
    if not name or len(name) > _MAX_NAME or not name.isprintable():
        raise ArtifactError(f"{name[:_MAX_NAME]!r} is no name: up to {_MAX_NAME} printable characters are")
    return name


def _check_names(network: Network, keys: Iterable[str]) -> None:
    known = [spec.name for spec in (*network.inputs, *network.outputs)]
    for key in keys:
        if key not in known:
            raise ConfigError(f"no tensor is called {key!r}; there are {', '.join(known)}")


def _check_bounds(*, row_alignment: int, reuse: int, work: int, private_data: bytes | None) -> None:
    if not 1 <= row_alignment <= _MAX_ROW:
        raise ConfigError(f"rows at multiples of {row_alignment} bytes: 1 to {_MAX_ROW} are possible")
    if not 0 <= reuse <= MAX_REUSE:
        raise ConfigError(f"memory reuse of type {reuse}: 0 to {MAX_REUSE} are known")
    if not 0 <= work < 1 << 32:
        raise ConfigError(f"{work} bytes of workspace: 32 bits tell how many")
    if private_data == b"":
        raise ConfigError("the private data is empty; leave it out")


def _cycles(latency: float | None, clock_hz: float) -> int | None:
    if latency is None:
        return None
    if not 0 <= latency * clock_hz < _MAX_CYCLES:
        raise ConfigError(f"a latency of {latency:g} s at {clock_hz:g} Hz")
    return round(latency * clock_hz)


def _workspace(size: int) -> list[XmmTensor]:
    if not size:
        return []
    return [XmmTensor("workspace", Region.WORKSPACE, 0, (size,), (1,), NpuType.UINT8, size)]


def _placed(tensors: Sequence[XmmTensor], region: Region) -> list[Named]:
    """Pack the tensors of one side."""
    offsets = packed_offsets([each.size for each in tensors])
    return [
        (each.name, replace(each, region=region, offset=offset))
        for each, offset in zip(tensors, offsets, strict=True)
    ]


def _tensor(
    spec: TensorSpec,
    formats: Mapping[str, Format],
    default: Format | None,
    pitches: Mapping[str, Extents],
    row_alignment: int,
) -> XmmTensor:
    """Lay out one tensor, as if at the start of its region."""
    dims = tuple(dim for dim in spec.shape if isinstance(dim, int)) or (1,)
    if len(dims) > MAX_DIMS or 0 in dims:
        raise ArtifactError(f"{spec.name!r} is {spec}; a tensor has 1 to {MAX_DIMS} axes of 1 or more")
    chosen = _format(spec, formats.get(spec.name), default)
    told = pitches.get(spec.name)
    if told is not None and (len(told) != len(dims) or min(told) < 0):
        raise ConfigError(f"{spec.name!r} is {spec}; its pitches cannot be {list(told)}")
    steps = told or packed_pitches(dims, chosen.type, row=row_alignment)
    size = packed_size(dims, steps, chosen.type)
    tensor = XmmTensor(
        spec.name, Region.INPUT, 0, dims, steps, chosen.type, size, chosen.scale, chosen.zero_point
    )
    layout(tensor)
    return tensor


def _format(spec: TensorSpec, chosen: Format | None, default: Format | None) -> Format:
    if chosen is not None:
        return chosen
    if default is not None and spec.dtype == np.float32:
        return default
    if spec.dtype.name not in _DEFAULTS:
        raise ArtifactError(f"{spec.name!r} is {spec}, which an NPU's tensor cannot be: give a format for it")
    return Format(_DEFAULTS[spec.dtype.name])


def _matched(tensors: Sequence[XmmTensor], graph: Sequence[TensorSpec], name: str) -> list[str]:
    """Return names of the graph's tensors in the model's order: matched by name, else by order."""
    if len(tensors) != len(graph):
        raise ArtifactError(f"{name}: it has {len(graph)} tensors where the model has {len(tensors)}")
    by_name = {spec.name: spec for spec in graph}
    if {each.name for each in tensors} == set(by_name):
        graph = [by_name[each.name] for each in tensors]
    for want, have in zip(tensors, graph, strict=True):
        if not _agree(want.dims, have.shape):
            raise ArtifactError(
                f"{name}: {have.name!r} is {have}, the model's {want.name!r} is {list(want.dims)}"
            )
    return [have.name for have in graph]


def _agree(wanted: Extents, graph: Sequence[Dim]) -> bool:
    """Whether extents are the same, or, where a graph fixes all of its own, the same but for extents of 1."""
    if len(wanted) == len(graph):
        return all(isinstance(have, str) or have == want for have, want in zip(graph, wanted, strict=True))
    return [dim for dim in wanted if dim != 1] == [dim for dim in graph if dim != 1]
