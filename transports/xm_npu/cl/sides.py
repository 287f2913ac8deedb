"""Stage 6: what the library tells of the two sides of a graph, and whether it can be meant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from repertory.models.xmm_tensor import MAX_DIMS, NpuType, aligned

from .library import InOut, ReuseType, Tensor, XmediaCl
from .statuses import check, misuse

__all__ = ["Side", "ask", "label", "shared_sides", "span_bytes"]

Side: TypeAlias = Literal["input", "output"]
"""Of a graph's tensors."""

_SHARED: Final[dict[int, frozenset[Side]]] = {
    ReuseType.WORKSPACE: frozenset[Side](),
    ReuseType.WORKSPACE_INPUT: frozenset[Side]({"input"}),
    ReuseType.WORKSPACE_OUTPUT: frozenset[Side]({"output"}),
    ReuseType.WORKSPACE_INPUT_OUTPUT: frozenset[Side]({"input", "output"}),
}
_MAX_TENSORS: Final = 1024
_FOREIGN: Final = "the library may be of another revision than C"


async def ask(library: XmediaCl, handle: int, side: Side, name: str) -> InOut:
    """Ask twice, as it must be: for the number of tensors, then for all about them.

    Args:
        library: which.
        handle: of the graph.
        side: of its tensors.
        name: of the graph, for messages.

    Raises:
        NpuRefusal: a call was refused, or its answer can be none of this revision of the library.
    """
    call = f"xmedia_cl_graph_get_{side}"
    get = library.xmedia_cl_graph_get_input if side == "input" else library.xmedia_cl_graph_get_output
    io = InOut()
    check(call, await get(handle, 0, io), stage=6)
    if not 0 < io.num <= _MAX_TENSORS:
        raise misuse(6, call, f"{name} has {io.num} tensors")
    check(call, await get(handle, io.num, io.allocate()), stage=6)
    for tensor in io.tensor or ():
        _check_plausible(call, tensor)
    return io


async def shared_sides(library: XmediaCl, handle: int, otherwise: int) -> frozenset[Side]:
    """Return the sides whose tensors lie inside the workspace.

    Args:
        library: which.
        handle: of the graph.
        otherwise: the memory reuse type where the library does not tell.

    Raises:
        NpuRefusal: the call was refused, or told a kind that nobody knows.
    """
    call = "xmedia_cl_graph_get_memory_reuse_type"
    reuse, status = otherwise, 0
    if call in library.exports:
        reuse, status = await library.xmedia_cl_graph_get_memory_reuse_type(handle)
    check(call, status, stage=5)
    if reuse not in _SHARED:
        raise misuse(5, call, f"nobody knows the memory reuse type {reuse}")
    return _SHARED[reuse]


def span_bytes(tensors: Sequence[Tensor], batch: int = 1) -> int:
    """Return how many bytes the tensors of a side need."""
    return sum(aligned(tensor.size) for tensor in tensors) * batch


def label(tensor: Tensor) -> str:
    """Name a tensor in a message."""
    name = "" if tensor.name is None else f" {tensor.name.decode(errors='replace')}"
    return f"tensor {tensor.tensor_id}{name}"


def _check_plausible(call: str, tensor: Tensor) -> None:
    """Refuse what no library of revision C can have meant; of B the second tensor already looks like that."""
    if tensor.type not in {each.value for each in NpuType}:
        raise misuse(6, call, f"{label(tensor)} has the unknown element type {tensor.type}: {_FOREIGN}")
    if not 1 <= tensor.ndims <= MAX_DIMS or not tensor.size:
        raise misuse(6, call, f"{label(tensor)} has {tensor.ndims} axes and {tensor.size} bytes: {_FOREIGN}")
