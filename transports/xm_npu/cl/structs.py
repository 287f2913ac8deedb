"""The C side of the library's structures, of revision C, for any width of a pointer."""

from __future__ import annotations

from ctypes import Structure, c_float, c_int32, c_uint32, c_void_p
from typing import ClassVar, Final, TypeAlias, final

from repertory.models.xmm_tensor import MAX_DIMS

__all__ = ["NATIVE", "Fields", "MemInfoStruct", "ProfilingStruct", "Structs"]

Fields: TypeAlias = tuple[tuple[str, object], ...]
"""What ctypes makes a structure of: names and types, in the order of the header."""

_MAX_BATCHES: Final = 8

_MEM_INFO: Final = (
    "worksize",
    "weightsize",
    "inputsize",
    "outputsize",
    "codesize",
    "memory_reuse_type",
    "private_data_size",
)


def _structure(name: str, fields: Fields) -> type[Structure]:
    return type(name, (Structure,), {"_fields_": fields})


@final
class MemInfoStruct(Structure):
    """`xmedia_cl_mem_info`; without pointers."""

    _fields_ = tuple((name, c_uint32) for name in _MEM_INFO)
    names: ClassVar[tuple[str, ...]] = _MEM_INFO


@final
class ProfilingStruct(Structure):
    """`xmedia_cl_profiling_params`; passes by value."""

    _fields_ = (("type", c_uint32), ("flag", c_uint32))


@final
class Structs:
    """The structures with pointers in them, from one list of fields.

    Args:
        pointer: `c_void_p` for this process, `c_uint32` or `c_uint64` to see another's layout.

    Attributes:
        shape: `xmedia_cl_tensor_shape`.
        quant: `xmedia_cl_tensor_quant`.
        list: `xmedia_cl_tensor_list`.
        batch: `xmedia_cl_tensor_batch`.
        tensor: `xmedia_cl_tensor`.
        inout: `xmedia_cl_tensor_info_inout`.
    """

    def __init__(self, pointer: type) -> None:
        eight = c_uint32 * MAX_DIMS
        shape = _structure(
            "xmedia_cl_tensor_shape",
            (("ndims", c_uint32), ("dims", eight), ("pch", eight), ("type", c_uint32)),
        )
        quant = _structure("xmedia_cl_tensor_quant", (("scale", c_float), ("zp", c_int32)))
        self.shape = shape
        self.quant = quant
        self.list = _structure("xmedia_cl_tensor_list", (("num", c_uint32), ("id", pointer)))
        self.batch = _structure(
            "xmedia_cl_tensor_batch", (("batch_count", c_uint32), ("batch", c_uint32 * _MAX_BATCHES))
        )
        self.tensor = _structure(
            "xmedia_cl_tensor",
            (
                ("tensor_id", c_uint32),
                ("addr", pointer),
                ("shape", shape),
                ("quant", quant),
                ("size", c_uint32),
                ("name", pointer),
            ),
        )
        self.inout = _structure(
            "xmedia_cl_tensor_info_inout",
            (("num", c_uint32), ("tensor", pointer), ("tensor_batch", pointer), ("current_batch", pointer)),
        )


NATIVE: Final = Structs(c_void_p)
"""As this process lays them out: ILP32 on the hardware, LP64 on most hosts."""
