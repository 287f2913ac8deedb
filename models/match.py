"""Which tensor of an ONNX graph stands for which tensor of a model file."""

from __future__ import annotations

from collections.abc import Sequence

from .codec import FLOAT32, UINT8
from .errors import ArtifactError
from .spec import Dim, TensorSpec

__all__ = ["matched"]


def matched(
    wanted: Sequence[TensorSpec],
    graph: Sequence[TensorSpec],
    name: str,
    *,
    what: str = "port",
    bytes_as_floats: bool = True,
) -> list[str]:
    """Return names of the graph's tensors in the file's order: matched by name, else by order.

    Args:
        wanted: the file's tensors.
        graph: the graph's.
        name: of the graph, in messages.
        what: the file's tensors are, in messages.
        bytes_as_floats: whether the bytes of an image may become a graph's floats.

    Raises:
        ArtifactError: they do not fit.
    """
    if len(wanted) != len(graph):
        raise ArtifactError(f"{name}: it has {len(graph)} tensors where the file has {len(wanted)} {what}s")
    by_name = {spec.name: spec for spec in graph}
    if {spec.name for spec in wanted} == set(by_name):
        graph = [by_name[spec.name] for spec in wanted]
    for want, have in zip(wanted, graph, strict=True):
        image = bytes_as_floats and (have.dtype, want.dtype) == (FLOAT32, UINT8)
        if not (image or have.dtype == want.dtype) or not _agree(want.shape, have.shape):
            raise ArtifactError(f"{name}: {have.name!r} is {have}, the {what} {want.name!r} is {want}")
    return [have.name for have in graph]


def _agree(wanted: Sequence[Dim], graph: Sequence[Dim]) -> bool:
    return len(wanted) == len(graph) and all(
        isinstance(have, str) or have == want for have, want in zip(graph, wanted, strict=True)
    )
