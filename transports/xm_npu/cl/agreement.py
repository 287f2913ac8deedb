"""Whether the library sees a model as its file was read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from repertory.models.npu_code import is_twin_code
from repertory.models.xmm_tensor import NpuType, XmmTensor
from repertory.transports.xm_npu.program import Loadable

from .library import Tensor
from .sides import Side
from .statuses import misuse

__all__ = ["check_real", "check_tensors"]

_LOAD: Final = "xmedia_cl_graph_loadmodel_from_buff"


def check_real(model: Loadable) -> None:
    """Refuse a model for simulated NPUs.

    Raises:
        NpuRefusal: its code is no NPU's.
    """
    if any(is_twin_code(model.data[code.offset : code.offset + code.size]) for code in model.codes):
        raise misuse(5, _LOAD, f"{model.name} was packed for simulated NPUs; a real one cannot run its code")


def check_tensors(name: str, side: Side, told: Sequence[Tensor], read: Sequence[XmmTensor]) -> None:
    """Compare the tensors of one side.

    Raises:
        NpuRefusal: they differ; names the first one that does.
    """
    call = f"xmedia_cl_graph_get_{side}"
    if len(told) != len(read):
        raise misuse(6, call, f"{name}: the library tells {len(told)} {side}s, the file {len(read)}")
    for library, file in zip(told, read, strict=True):
        for what, one, other in _facts(library, file):
            if one != other:
                raise misuse(
                    6, call, f"{name}: {side} {file.name!r}: the library tells {what} {one}, the file {other}"
                )


def _facts(told: Tensor, read: XmmTensor) -> Sequence[tuple[str, object, object]]:
    axes = told.ndims
    return (
        ("type", NpuType(told.type).name, read.type.name),
        ("shape", told.dims[:axes], read.dims),
        ("bytes", told.size, read.size),
        ("pitches", told.pch[:axes], read.pitches if any(told.pch[:axes]) else told.pch[:axes]),
    )
