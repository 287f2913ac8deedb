"""The C side of the library's functions: what each takes and returns, as in the headers of revision C."""

from __future__ import annotations

from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int32, c_uint32, c_uint64, c_void_p
from types import MappingProxyType
from typing import Any, Final

from .structs import NATIVE, MemInfoStruct, ProfilingStruct

__all__ = ["NOTIFY", "RETURNS", "SIGNATURES"]

NOTIFY: Final = CFUNCTYPE(None, c_void_p, c_int32, c_void_p)
"""A callback: event, status, and what was registered with it."""

_HANDLE: Final = c_void_p
_TEXT: Final = c_char_p
_U32P: Final = POINTER(c_uint32)
_HANDLES: Final = POINTER(c_void_p)
_INOUT: Final = POINTER(NATIVE.inout)
_SIZES: Final = (_TEXT, _U32P, _U32P)
_INFO: Final = (_TEXT, POINTER(MemInfoStruct), c_uint32)
_PRIVATE: Final = (_TEXT, c_void_p, c_uint32)
_LOAD: Final = (_HANDLES, _TEXT, _HANDLES)
_LOAD_WITHMEM: Final = (_HANDLES, _TEXT, c_void_p, c_uint32, c_void_p, c_uint32, _HANDLES)

SIGNATURES: Final = MappingProxyType[str, tuple[Any, ...]](
    {
        "xmedia_sys_init": (c_void_p,),
        "xmedia_sys_exit": (),
        "xmedia_mmz_init": (),
        "xmedia_mmz_exit": (),
        "xmedia_mmz_alloc": (_TEXT, _TEXT, c_uint32),
        "xmedia_mmz_free": (c_uint64,),
        "xmedia_mmz_map": (c_uint64, c_uint32, c_int32),
        "xmedia_mmz_unmap": (c_void_p,),
        "xmedia_mmz_flush_cache": (c_uint64, c_void_p, c_uint32),
        "xmedia_mmz_virt_to_phy": (c_void_p, POINTER(c_uint64)),
        "xmedia_mmz_is_cached": (c_void_p, POINTER(c_int32)),
        "xmedia_cl_init": (),
        "xmedia_cl_uninit": (),
        "xmedia_cl_get_device_ids": (c_uint32, _HANDLES, _U32P),
        "xmedia_cl_release_device_ids": (_HANDLES, _U32P),
        "xmedia_cl_create_context": (c_uint32, _HANDLES, POINTER(c_int32)),
        "xmedia_cl_release_context": (_HANDLE,),
        "xmedia_cl_set_workspace_addr": (_HANDLE, c_void_p, c_uint32),
        "xmedia_cl_get_workspace_addr": (_HANDLE, _HANDLES, _U32P),
        "xmedia_cl_graph_querysize_from_file": _SIZES,
        "xmedia_cl_graph_querysize_from_buff": _SIZES,
        "xmedia_cl_graph_query_model_info_from_file": _INFO,
        "xmedia_cl_graph_query_model_info_from_buff": _INFO,
        "xmedia_cl_graph_get_private_data_from_file": _PRIVATE,
        "xmedia_cl_graph_get_private_data_from_buff": _PRIVATE,
        "xmedia_cl_graph_loadmodel_from_file": _LOAD,
        "xmedia_cl_graph_loadmodel_from_buff": _LOAD,
        "xmedia_cl_graph_loadmodel_from_file_withmem": _LOAD_WITHMEM,
        "xmedia_cl_graph_loadmodel_from_buff_withmem": _LOAD_WITHMEM,
        "xmedia_cl_graph_unload": (_HANDLE,),
        "xmedia_cl_graph_get_input": (_HANDLE, c_uint32, _INOUT),
        "xmedia_cl_graph_get_output": (_HANDLE, c_uint32, _INOUT),
        "xmedia_cl_graph_set_dynamic_batch_size": (_HANDLE, _INOUT, c_uint32, c_uint32),
        "xmedia_cl_graph_set_inout": (_HANDLE, _INOUT, _INOUT),
        "xmedia_cl_graph_process": (_HANDLE,),
        "xmedia_cl_graph_submit": (_HANDLE, _HANDLES),
        "xmedia_cl_graph_set_schedule_prio": (_HANDLE, c_uint32),
        "xmedia_cl_graph_get_memory_reuse_type": (_HANDLE, _U32P),
        "xmedia_cl_graph_get_private_data": (_HANDLE, _HANDLES, _U32P),
        "xmedia_cl_graph_set_compress_config": (_HANDLE, c_void_p, c_uint32, c_uint32),
        "xmedia_cl_graph_communicate": (_HANDLE, _U32P),
        "xmedia_cl_graph_decommunicate": (_HANDLE, c_uint32),
        "xmedia_cl_set_profiling": (_HANDLE, ProfilingStruct),
        "xmedia_cl_wait_for_events": (c_uint32, _HANDLES),
        "xmedia_cl_query_event_status": (_HANDLE, POINTER(c_int32)),
        "xmedia_cl_set_event_callback": (_HANDLE, c_int32, NOTIFY, c_void_p),
        "xmedia_cl_release_event": (_HANDLE,),
    }
)
"""Argument types by name: one entry for each method of `XmediaCl` that is a function of the library."""

RETURNS: Final = MappingProxyType[str, Any](
    {
        "xmedia_mmz_init": None,
        "xmedia_mmz_exit": None,
        "xmedia_mmz_alloc": c_uint64,
        "xmedia_mmz_map": c_void_p,
        "xmedia_cl_create_context": c_void_p,
    }
)
"""Those that do not return a status, a signed number of 32 bits."""
