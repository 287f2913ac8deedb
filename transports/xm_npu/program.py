"""How an NPU reads a model: an `.xmm` file, checked before anything is loaded."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Final, Literal, TypeAlias, final

from repertory.models.errors import ArtifactError, UnknownModel
from repertory.models.pack_xm_npu import attach_twin_xm_npu
from repertory.models.program import Artifact, Network, Program
from repertory.models.spec import TensorSpec
from repertory.models.xmm import HIGH, Xmm, extent
from repertory.models.xmm_numbers import tensor_spec
from repertory.models.xmm_tensor import ALIGNMENT, MAX_BATCH, XmmTensor, aligned

__all__ = ["PAGE", "PLACES", "BatchLayout", "Code", "Loadable", "Way", "loadable", "prepare_xmm"]

PAGE: Final = 4096
"""Bytes to which the memory for models is given."""
PLACES: Final = 2
"""Places of a graph by the library: one may be staged while the other runs."""

BatchLayout: TypeAlias = Literal["tensors"]
"""How the library lays a batch: all items of a tensor one behind the other, then those of the next."""

Way: TypeAlias = Literal["cl", "ioctl"]
"""By the vendor's library, or by the driver's nodes."""

_PART = 16  # bytes to which the parts of a window are rounded
_INPUTS_INSIDE = (1, 3)  # types of memory reuse
_OUTPUTS_INSIDE = (2, 3)


@final
@dataclass(frozen=True, slots=True)
class Code:
    """One program of a file: its instructions.

    Attributes:
        offset: in the file.
        size: bytes.
    """

    offset: int
    size: int


@final
@dataclass(frozen=True, slots=True)
class Loadable:
    """The image of a program: what to load, and what it takes and gives.

    Attributes:
        data: the file's content.
        name: for messages, and of the network.
        codes: the file's programs, in the order in which a run takes them.
        params: offset and size of the parameters in the file.
        work: bytes of workspace that querysize tells.
        inputs: how the inputs lie in memory, in the order of the network's.
        outputs: likewise.
        reuse: 0 where inputs and outputs lie apart from the workspace; 1, 2, 3 where the inputs, the outputs
            or both lie in it.
        batch: items of a dynamic batch; 1 without one. The network's first extent is multiplied by it.
        native: whether outputs are given as they are stored; else they are float32.
        network: what the callers see.
    """

    data: bytes
    name: str
    codes: tuple[Code, ...]
    params: tuple[int, int]
    work: int
    inputs: tuple[XmmTensor, ...]
    outputs: tuple[XmmTensor, ...]
    reuse: int
    batch: int
    native: bool
    network: Network


def loadable(program: Program) -> Loadable:
    """Return a program's image.

    Raises:
        ArtifactError: it was prepared by a device of another family.
    """
    if not isinstance(program.image, Loadable):
        raise ArtifactError(f"{program.name} was prepared for another family than xm-npu")
    return program.image


def prepare_xmm(
    artifact: Artifact,
    *,
    simulated: bool,
    via: Way,
    batch: int = 1,
    budget: int,
    places: int = PLACES,
    native: bool = False,
    batch_layout: BatchLayout | None = None,
) -> Program:
    """Read a model, which holds one network.

    The footprint is whole pages for each of code, parameters, and inputs and outputs of every place; the
    workspace is scratch, which all graphs share, unless inputs or outputs lie in it. By the nodes it is the
    whole window, workspace included.

    Args:
        artifact: the model; its `native_outputs` count.
        simulated: whether for a simulated NPU, which runs the artifact's twin, else the one in the file.
        via: the way to the NPU.
        batch: items of a dynamic batch, 1 to 32; by the library only.
        budget: bytes of memory for models.
        places: of a graph, by the library.
        batch_layout: how the library lays a batch, where somebody has seen it; a simulator's is `tensors`.
            Without it, hardware gets no batch of a model for which the readings of the public facts differ.
        native: let outputs be what lies in memory, whatever the artifact says.

    Raises:
        ArtifactError: no NPU of this family could run it, or not in so much memory or with this batch; it is
            a twin that came to real hardware, or has no twin and came to a simulator.
        UnknownModel: the artifact names another network than the file holds.
        ConfigError: flatbuffers, or onnxruntime for a twin, is not installed.
    """
    native = native or artifact.native_outputs
    with _named(artifact.name):
        xmm = _read(artifact, simulated=simulated)
        _check(xmm, via, batch)
        if not simulated and batch_layout is None:
            _check_batch(xmm, batch)
        image = _image(xmm, xmm.name or Path(artifact.name).stem, batch, native=native)
        footprint, scratch = _needs(xmm, via, batch, places)
        _check_room(footprint, scratch, budget)
    if artifact.network not in (None, image.name):
        raise UnknownModel(f"{artifact.name} holds {image.name!r}, not {artifact.network!r}")
    return Program(
        key=_digest(xmm.data, repr((image.name, via, batch, native)).encode()),
        name=image.name,
        networks=(image.network,),
        footprint=footprint,
        scratch=scratch,
        image=image,
    )


@contextmanager
def _named(name: str) -> Generator[None]:
    """Say which file is at fault."""
    try:
        yield
    except ArtifactError as error:
        raise ArtifactError(f"{name}: {error}") from error


def _read(artifact: Artifact, *, simulated: bool) -> Xmm:
    xmm = Xmm.read(artifact.data)
    if not simulated and xmm.is_twin:
        raise ArtifactError(
            "it is a simulation twin: it holds no code for an NPU; only sim+xm-npu:// runs it"
        )
    if simulated and artifact.twin is not None:
        return Xmm.read(attach_twin_xm_npu(artifact.data, artifact.twin, name=Path(artifact.name).stem))
    if simulated and not xmm.is_twin:
        raise ArtifactError("it carries no twin: a simulator needs twin= (an ONNX file)")
    return xmm


def _check(xmm: Xmm, via: Way, batch: int) -> None:
    if xmm.model_type != HIGH:
        raise ArtifactError(
            f"it is of model type {xmm.model_type}; this NPU runs type {HIGH} (ERROR_MODEL_TYPE, -68)"
        )
    if not 1 <= batch <= MAX_BATCH:
        raise ArtifactError(f"a batch of {batch}; 1 to {MAX_BATCH} are possible (OUT_OF_MAX_BATCH, -74)")
    if via == "ioctl" and batch > 1:
        raise ArtifactError(f"a batch of {batch}: only the library knows dynamic batches")
    if batch > 1 and xmm.reuse:
        raise ArtifactError(
            f"a batch of {batch} and memory reuse of type {xmm.reuse}: nobody has told how the library lays "
            "more than one item into a workspace"
        )
    if via == "ioctl" and xmm.reuse:
        raise ArtifactError(f"memory reuse of type {xmm.reuse}: only the library knows how to lay it out")


def _check_batch(xmm: Xmm, batch: int) -> None:
    """Refuse a batch that could lie in two ways: tensor by tensor, or item by item."""
    plain = all(len(side) == 1 and side[0].size % ALIGNMENT == 0 for side in (xmm.inputs, xmm.outputs))
    if batch > 1 and not plain:
        raise ArtifactError(
            f"a batch of {batch} of several tensors, or of sizes that are no multiple of {ALIGNMENT}: nobody"
            " has told whether the library lays it tensor by tensor or item by item. If you have seen that it"
            " is tensor by tensor, say so: ?batch_layout=tensors in the device's address"
        )


def _check_room(footprint: int, scratch: int, budget: int) -> None:
    if footprint + scratch > budget:
        raise ArtifactError(
            f"it takes {footprint} bytes and a workspace of {scratch}; the memory for models has {budget}"
        )


def _image(xmm: Xmm, name: str, batch: int, *, native: bool) -> Loadable:
    inputs, outputs = _called(xmm.inputs, "input"), _called(xmm.outputs, "output")
    return Loadable(
        data=xmm.data,
        name=name,
        codes=tuple(Code(each.offset, each.size) for each in xmm.programs),
        params=xmm.params,
        work=xmm.worksize,
        inputs=inputs,
        outputs=outputs,
        reuse=xmm.reuse,
        batch=batch,
        native=native,
        network=Network(
            name,
            tuple(_spec(each, batch, output=False, native=native) for each in inputs),
            tuple(_spec(each, batch, output=True, native=native) for each in outputs),
        ),
    )


def _called(tensors: Sequence[XmmTensor], what: str) -> tuple[XmmTensor, ...]:
    """Give tensors without a name one, and tell equal names apart by the number of the tensor."""
    taken = {each.name for each in tensors}
    seen: set[str] = set()
    called: list[XmmTensor] = []
    for number, each in enumerate(tensors):
        name = each.name
        if not name or name in seen:
            name = f"{each.name or what}_{number}"
            while name in taken:
                name += "_"
            taken.add(name)
        seen.add(name)
        called.append(replace(each, name=name))
    return tuple(called)


def _spec(tensor: XmmTensor, batch: int, *, output: bool, native: bool) -> TensorSpec:
    spec = tensor_spec(tensor, output=output, native=native)
    return replace(spec, shape=(tensor.dims[0] * batch, *tensor.dims[1:]))


def _needs(xmm: Xmm, via: Way, batch: int, places: int) -> tuple[int, int]:
    """Return footprint and scratch in bytes."""
    if via == "ioctl":
        code = sum(aligned(each.size, _PART) for each in xmm.programs)
        sides = aligned(extent(xmm.inputs), _PART) + aligned(extent(xmm.outputs), _PART)
        parts = aligned(xmm.params[1], _PART) + aligned(xmm.worksize, _PART)
        return _pages(code + parts + sides), 0
    code = sum(_pages(each.size) for each in xmm.programs)
    fixed, work = code + _pages(xmm.weightsize), _pages(xmm.worksize)
    inputs, outputs = (_pages(_packed(side) * batch) for side in (xmm.inputs, xmm.outputs))
    if not xmm.reuse and len(xmm.programs) == 1:
        return fixed + places * (inputs + outputs), work
    if not xmm.reuse:  # the workspace is shared only where a run is one job of the hardware
        return fixed + work + places * (inputs + outputs), 0
    outside = (inputs, xmm.reuse not in _INPUTS_INSIDE), (outputs, xmm.reuse not in _OUTPUTS_INSIDE)
    return fixed + work + sum(size for size, needed in outside if needed), 0


def _packed(tensors: Sequence[XmmTensor]) -> int:
    return sum(aligned(each.size) for each in tensors)


def _pages(size: int) -> int:
    return aligned(size, PAGE)


def _digest(*parts: bytes) -> str:
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
