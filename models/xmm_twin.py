"""Models for simulated NPUs: a graph among the parameters, and code that names it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Final, TypeAlias

from .npu_code import VERSION, CodeTensor, NpuCode, encode_code
from .xmm import DIGEST_BYTES
from .xmm_parts import XmmNode
from .xmm_tensor import NpuType, Region, XmmTensor
from .xmm_writer import Draft

__all__ = ["PACKED_BY", "Named", "twin_draft"]

PACKED_BY: Final = "repertory-pack 1"
"""What stands where compilers leave their version, in a file without code for an NPU."""

Named: TypeAlias = tuple[str, XmmTensor]
"""What a tensor is called in the graph, and how it lies in memory."""

_NPU = 1  # an operator's device


def twin_draft(
    name: str,
    onnx: bytes,
    inputs: Sequence[Named],
    outputs: Sequence[Named],
    *,
    work: Sequence[XmmTensor],
    cycles: int | None,
) -> Draft:
    """Return a model of one program and one operator.

    Args:
        name: of the network.
        onnx: a whole ONNX file.
        inputs: in the order of a run; their numbers are given anew.
        outputs: likewise.
        work: what lies in the workspace.
        cycles: of the NPU's clock that a run takes, or None if nobody told.
    """
    graph = XmmTensor("graph", Region.CONST, 0, (len(onnx),), (1,), NpuType.UINT8, len(onnx))
    flat = (*(each for _, each in inputs), graph, *work, *(each for _, each in outputs))
    tensors = tuple(replace(each, id=number) for number, each in enumerate(flat))
    takes, gives = tuple(range(len(inputs))), tuple(range(len(flat) - len(outputs), len(flat)))
    node = XmmNode("repertory_twin", _NPU, (*takes, len(takes)), gives)
    draft = Draft(name, PACKED_BY, (), onnx, tensors, takes, gives, (node,))
    code = NpuCode(
        VERSION,
        name,
        (0, len(onnx)),
        blake2b(onnx, digest_size=DIGEST_BYTES).digest(),
        draft.sizes,
        tuple(_code_tensor(*each) for each in inputs),
        tuple(_code_tensor(*each) for each in outputs),
        cycles,
    )
    return replace(draft, codes=(("main", encode_code(code)),))


def _code_tensor(graph_name: str, tensor: XmmTensor) -> CodeTensor:
    return CodeTensor(
        graph_name,
        tensor.offset,
        tensor.dims,
        tensor.pitches,
        int(tensor.type),
        tensor.size,
        tensor.scale,
        tensor.zero_point,
    )
