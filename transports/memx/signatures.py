"""The C side of libmemx: what each function takes, as in the headers of 2.10 to 2.12. All return a u32."""

from __future__ import annotations

from ctypes import (
    POINTER,
    Structure,
    c_char_p,
    c_float,
    c_int32,
    c_size_t,
    c_uint8,
    c_uint16,
    c_uint32,
    c_void_p,
)
from types import MappingProxyType
from typing import Any, Final, final

__all__ = ["SIGNATURES", "FmapBuf"]


@final
class FmapBuf(Structure):
    """`memx_fmap_buf_t`."""

    _fields_ = (("size", c_size_t), ("idx", c_size_t), ("data", c_void_p))


_GROUP: Final = (c_uint8,)
_CONTEXT: Final = (c_uint8,)
_SETTING: Final = (c_uint8, c_int32)
_SIZE: Final = (c_uint8, c_uint8, *(POINTER(c_int32),) * 5)
_FRAME: Final = (c_uint8, c_uint8, c_void_p, c_int32)
_BUFFER: Final = (c_uint8, c_uint8, POINTER(FmapBuf), c_int32)

SIGNATURES: Final = MappingProxyType[str, tuple[Any, ...]](
    {
        "memx_lock": _GROUP,
        "memx_trylock": _GROUP,
        "memx_unlock": _GROUP,
        "memx_open": (c_uint8, c_uint8, c_float),
        "memx_close": _CONTEXT,
        "memx_reconfigure": (c_uint8, c_uint8),
        "memx_set_ifmap_queue_size": _SETTING,
        "memx_set_ofmap_queue_size": _SETTING,
        "memx_set_abort_read": _CONTEXT,
        "memx_set_powerstate": (c_uint8, c_uint8),
        "memx_get_chip_gen": (c_uint8, POINTER(c_uint8)),
        "memx_operation": (c_uint8, c_uint32, c_void_p, c_uint32),
        "memx_download_model": (c_uint8, c_char_p, c_uint8, c_int32),
        "memx_download_model_wtmem": (c_uint8, c_char_p),
        "memx_download_model_config": (c_uint8, c_char_p, c_uint8),
        "memx_set_stream_enable": _SETTING,
        "memx_set_stream_disable": _SETTING,
        "memx_get_ifmap_size": _SIZE,
        "memx_get_ofmap_size": _SIZE,
        "memx_get_ifmap_range_convert": (
            c_uint8,
            c_uint8,
            POINTER(c_int32),
            POINTER(c_float),
            POINTER(c_float),
        ),
        "memx_get_ofmap_hpoc": (c_uint8, c_uint8, POINTER(c_int32), POINTER(POINTER(c_int32))),
        "memx_stream_ifmap": _FRAME,
        "memx_stream_ofmap": _FRAME,
        "memx_dequeue_ifmap_buf": _BUFFER,
        "memx_enqueue_ifmap_buf": _BUFFER,
        "memx_dequeue_ofmap_buf": _BUFFER,
        "memx_enqueue_ofmap_buf": _BUFFER,
        "memx_config_mpu_group": (c_uint8, c_uint8),
        "memx_get_total_chip_count": (c_uint8, POINTER(c_uint8)),
        "memx_operation_get_device_count": (POINTER(c_uint32),),
        "memx_operation_get_mpu_group_count": (c_uint8, POINTER(c_uint32)),
        "memx_get_feature": (c_uint8, c_uint8, c_int32, c_void_p),
        "memx_set_feature": (c_uint8, c_uint8, c_int32, c_uint16),
        "memx_enter_device_deep_sleep": _GROUP,
        "memx_exit_device_deep_sleep": _GROUP,
    }
)
"""Argument types by name: one entry for each method of `Libmemx`."""
