"""A model as the library is given it: a path, or bytes that were checked as far as the library does not."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from os import PathLike
from typing import Final, TypeAlias, final

from .library import MemInfo, XmediaCl
from .statuses import check, misuse

__all__ = ["Model", "ModelSizes", "check_bytes", "given", "query_sizes", "suffix"]

Model: TypeAlias = bytes | str | PathLike[str]
"""The content of a model file, or its path."""

_HEADER: Final = struct.Struct("<IIII")
_MAGIC: Final = 0x5A5A5A5A
_INFO: Final = "xmedia_cl_graph_query_model_info_from_"
_MEM_INFO: Final = 0


@final
@dataclass(frozen=True, slots=True)
class ModelSizes:
    """What a model needs; either size may be 0, and then nothing is to be passed.

    Attributes:
        work: bytes of workspace.
        weight: bytes of parameters.
        info: more of it, where the library tells.
    """

    work: int
    weight: int
    info: MemInfo | None = None


def check_bytes(stage: int, call: str, data: bytes) -> None:
    """Check what the library takes on trust: `_from_buff` takes no length and believes the header.

    Raises:
        NpuRefusal: the bytes end before the header says so.
    """
    if len(data) < _HEADER.size:
        raise misuse(stage, call, f"a model of {len(data)} bytes has no header")
    magic, _, head, tail = _HEADER.unpack_from(data)
    if magic == _MAGIC and head + tail > len(data):
        raise misuse(stage, call, f"the header promises {head + tail} bytes, the model has {len(data)}")


def suffix(model: Model) -> str:
    """Return how functions for such a model end."""
    return "buff" if isinstance(model, bytes) else "file"


def given(stage: int, call: str, model: Model) -> bytes:
    """Return a model as it is passed.

    Raises:
        NpuRefusal: `check_bytes`.
    """
    if isinstance(model, bytes):
        check_bytes(stage, call, model)
        return model
    return os.fsencode(model)


async def query_sizes(library: XmediaCl, model: Model, *, node: str) -> ModelSizes:
    """Stage 3: ask what memory a model needs.

    Raises:
        DeviceLost: there is no NPU.
        NpuRefusal: the model is malformed, unreadable, or of a type that this NPU does not run.
    """
    call = f"xmedia_cl_graph_querysize_from_{suffix(model)}"
    argument = given(3, call, model)
    query = (
        library.xmedia_cl_graph_querysize_from_buff
        if isinstance(model, bytes)
        else library.xmedia_cl_graph_querysize_from_file
    )
    work, weight, status = await query(argument)
    check(call, status, stage=3, node=node)
    return ModelSizes(work, weight, await _info(library, model, argument))


async def _info(library: XmediaCl, model: Model, argument: bytes) -> MemInfo | None:
    call = _INFO + suffix(model)
    if call not in library.exports:
        return None
    query = (
        library.xmedia_cl_graph_query_model_info_from_buff
        if isinstance(model, bytes)
        else library.xmedia_cl_graph_query_model_info_from_file
    )
    info, status = await query(argument, _MEM_INFO)
    return None if status else info
