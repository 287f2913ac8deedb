"""The vendor's libraries through ctypes, which releases the GIL during every call."""

from __future__ import annotations

import ctypes
import threading
from ctypes import byref, c_int32, c_uint8, c_uint32, c_uint64, c_void_p, string_at
from pathlib import Path
from typing import Any, final

from .library import OPTIONAL, InOut, MemInfo, Notify, XmediaCl
from .loader import Revision, load_functions
from .marshal import CInOut
from .signatures import NOTIFY
from .structs import MemInfoStruct, ProfilingStruct

__all__ = ["CtypesXmediaCl", "shared_library"]

_shared: dict[Path, CtypesXmediaCl] = {}
_sharing = threading.Lock()
_called_by_c: list[object] = []  # for good: nobody tells when a thread of the library is done with a callback


@final
class CtypesXmediaCl(XmediaCl):
    """The vendor's libraries; the methods block and never suspend, so `drive` runs them in driver threads.

    The libraries are loaded once a process and never unloaded. They must have been built for the libc and
    the ABI of this process.

    Args:
        place: directory of the libraries, or the file of libxmedia_cl; None for /usr/lib.
        revision: "C" to believe that the library is of that revision, where its exports do not show it.
        simulated: whether what stands behind the library's interface is no hardware.

    Attributes:
        file: of libxmedia_cl, with all links followed.

    Raises:
        ConfigError: a library is missing, foreign, or of another revision of the interface.
    """

    def __init__(
        self,
        place: str | Path | None = None,
        *,
        revision: Revision | None = None,
        simulated: bool = False,
    ) -> None:
        self._functions = load_functions(place, revision)
        self.file = self._functions.file
        self.exports = self._functions.names & OPTIONAL
        self.simulated = simulated
        self._notify: dict[int, Notify] = {}  # by event, until its release
        self._callback = NOTIFY(self._called)  # one for all: the library may be about to call it at any time
        _called_by_c.append(self._callback)
        self._bound: dict[int, tuple[CInOut | None, CInOut | None]] = {}  # by graph, as it was last set
        self._batches: dict[int, dict[int, CInOut]] = {}  # by graph and number of the tensor, likewise

    def memory(self, virt: int, size: int) -> memoryview:
        return memoryview((c_uint8 * size).from_address(virt)).cast("B")

    # -- system and memory -------------------------------------------------------------------------

    async def xmedia_sys_init(self) -> int:
        return self._status("xmedia_sys_init", None)

    async def xmedia_sys_exit(self) -> int:
        return self._status("xmedia_sys_exit")

    async def xmedia_mmz_init(self) -> None:
        self._call("xmedia_mmz_init")

    async def xmedia_mmz_exit(self) -> None:
        self._call("xmedia_mmz_exit")

    async def xmedia_mmz_alloc(self, mmz_name: bytes | None, buf_name: bytes | None, size: int) -> int:
        return self._status("xmedia_mmz_alloc", mmz_name, buf_name, size)

    async def xmedia_mmz_free(self, phy: int) -> int:
        return self._status("xmedia_mmz_free", phy)

    async def xmedia_mmz_map(self, phy: int, size: int, cached: bool) -> int:  # noqa: FBT001
        return self._call("xmedia_mmz_map", phy, size, int(cached)) or 0

    async def xmedia_mmz_unmap(self, virt: int) -> int:
        return self._status("xmedia_mmz_unmap", virt)

    async def xmedia_mmz_flush_cache(self, phy: int, virt: int, size: int) -> int:
        return self._status("xmedia_mmz_flush_cache", phy, virt, size)

    async def xmedia_mmz_virt_to_phy(self, virt: int) -> tuple[int, int]:
        phy = c_uint64()
        status = self._status("xmedia_mmz_virt_to_phy", virt, byref(phy))
        return phy.value, status

    async def xmedia_mmz_is_cached(self, virt: int) -> tuple[bool, int]:
        cached = c_int32()
        status = self._status("xmedia_mmz_is_cached", virt, byref(cached))
        return bool(cached.value), status

    # -- devices and contexts ----------------------------------------------------------------------

    async def xmedia_cl_init(self) -> int:
        return self._status("xmedia_cl_init")

    async def xmedia_cl_uninit(self) -> int:
        return self._status("xmedia_cl_uninit")

    async def xmedia_cl_get_device_ids(
        self, device_type: int, devices: list[int] | None, num_devices: int | None
    ) -> tuple[int, int]:
        number = None if num_devices is None else c_uint32(num_devices)
        array = _handles(devices)
        status = self._status(
            "xmedia_cl_get_device_ids", device_type, array, None if number is None else byref(number)
        )
        if devices is not None and array is not None:
            devices[:] = _values(array)
        return (0 if number is None else number.value), status

    async def xmedia_cl_release_device_ids(self, devices: list[int] | None, num_devices: int) -> int:
        return self._status("xmedia_cl_release_device_ids", _handles(devices), byref(c_uint32(num_devices)))

    async def xmedia_cl_create_context(self, num_devices: int, devices: list[int] | None) -> tuple[int, int]:
        error = c_int32()
        context = self._call("xmedia_cl_create_context", num_devices, _handles(devices), byref(error))
        return context or 0, error.value

    async def xmedia_cl_release_context(self, context: int) -> int:
        return self._status("xmedia_cl_release_context", context)

    async def xmedia_cl_set_workspace_addr(self, context: int, addr: int, worksize: int) -> int:
        return self._status("xmedia_cl_set_workspace_addr", context, addr, worksize)

    async def xmedia_cl_get_workspace_addr(self, context: int) -> tuple[int, int, int]:
        addr, size = c_void_p(), c_uint32()
        status = self._status("xmedia_cl_get_workspace_addr", context, byref(addr), byref(size))
        return addr.value or 0, size.value, status

    # -- models: a bytes object passes as its own address, NULs and all, and outlives the call -----

    async def xmedia_cl_graph_querysize_from_file(self, path: bytes | None) -> tuple[int, int, int]:
        return self._sizes("xmedia_cl_graph_querysize_from_file", path)

    async def xmedia_cl_graph_querysize_from_buff(self, buff: bytes | None) -> tuple[int, int, int]:
        return self._sizes("xmedia_cl_graph_querysize_from_buff", buff)

    async def xmedia_cl_graph_query_model_info_from_file(
        self, path: bytes | None, info_type: int
    ) -> tuple[MemInfo, int]:
        return self._info("xmedia_cl_graph_query_model_info_from_file", path, info_type)

    async def xmedia_cl_graph_query_model_info_from_buff(
        self, buff: bytes | None, info_type: int
    ) -> tuple[MemInfo, int]:
        return self._info("xmedia_cl_graph_query_model_info_from_buff", buff, info_type)

    async def xmedia_cl_graph_get_private_data_from_file(
        self, path: bytes | None, size: int
    ) -> tuple[bytes, int]:
        return self._private("xmedia_cl_graph_get_private_data_from_file", path, size)

    async def xmedia_cl_graph_get_private_data_from_buff(
        self, buff: bytes | None, size: int
    ) -> tuple[bytes, int]:
        return self._private("xmedia_cl_graph_get_private_data_from_buff", buff, size)

    async def xmedia_cl_graph_loadmodel_from_file(self, context: int, path: bytes | None) -> tuple[int, int]:
        return self._load("xmedia_cl_graph_loadmodel_from_file", context, path)

    async def xmedia_cl_graph_loadmodel_from_buff(self, context: int, buff: bytes | None) -> tuple[int, int]:
        return self._load("xmedia_cl_graph_loadmodel_from_buff", context, buff)

    async def xmedia_cl_graph_loadmodel_from_file_withmem(  # noqa: PLR0917  (the vendor's)
        self, context: int, path: bytes | None, workspace: int, worksize: int, weight: int, weightsize: int
    ) -> tuple[int, int]:
        name = "xmedia_cl_graph_loadmodel_from_file_withmem"
        return self._load(name, context, path, workspace, worksize, weight, weightsize)

    async def xmedia_cl_graph_loadmodel_from_buff_withmem(  # noqa: PLR0917  (the vendor's)
        self, context: int, buff: bytes | None, workspace: int, worksize: int, weight: int, weightsize: int
    ) -> tuple[int, int]:
        name = "xmedia_cl_graph_loadmodel_from_buff_withmem"
        return self._load(name, context, buff, workspace, worksize, weight, weightsize)

    async def xmedia_cl_graph_unload(self, graph: int) -> int:
        kept = self._bound.pop(graph, None), self._batches.pop(graph, None)  # another may get its address
        status = self._status("xmedia_cl_graph_unload", graph)
        del kept
        return status

    # -- graphs ------------------------------------------------------------------------------------

    async def xmedia_cl_graph_get_input(self, graph: int, input_num: int, io: InOut | None) -> int:
        return self._tensors("xmedia_cl_graph_get_input", graph, input_num, io)

    async def xmedia_cl_graph_get_output(self, graph: int, output_num: int, io: InOut | None) -> int:
        return self._tensors("xmedia_cl_graph_get_output", graph, output_num, io)

    async def xmedia_cl_graph_set_dynamic_batch_size(
        self, graph: int, io: InOut | None, index: int, batch: int
    ) -> int:
        c_io = None if io is None else CInOut(io)
        status = self._status(
            "xmedia_cl_graph_set_dynamic_batch_size", graph, c_io and byref(c_io.struct), index, batch
        )
        if io is not None and c_io is not None:
            c_io.read_into(io)
            self._batches.setdefault(graph, {})[index] = c_io  # nobody says that the library copies it
        return status

    async def xmedia_cl_graph_set_inout(self, graph: int, input: InOut | None, output: InOut | None) -> int:  # noqa: A002
        c_input, c_output = (None if io is None else CInOut(io) for io in (input, output))
        pointers = (None if io is None else byref(io.struct) for io in (c_input, c_output))
        status = self._status("xmedia_cl_graph_set_inout", graph, *pointers)
        self._bound[graph] = (c_input, c_output)  # nobody says that the library copies them
        return status

    async def xmedia_cl_graph_process(self, graph: int) -> int:
        return self._status("xmedia_cl_graph_process", graph)

    async def xmedia_cl_graph_submit(self, graph: int) -> tuple[int, int]:
        return self._handle("xmedia_cl_graph_submit", graph)

    async def xmedia_cl_graph_set_schedule_prio(self, graph: int, prio: int) -> int:
        return self._status("xmedia_cl_graph_set_schedule_prio", graph, prio)

    async def xmedia_cl_graph_get_memory_reuse_type(self, graph: int) -> tuple[int, int]:
        return self._number("xmedia_cl_graph_get_memory_reuse_type", graph)

    async def xmedia_cl_graph_get_private_data(self, graph: int) -> tuple[bytes, int]:
        data, size = c_void_p(), c_uint32()
        status = self._status("xmedia_cl_graph_get_private_data", graph, byref(data), byref(size))
        return (string_at(data.value, size.value) if data.value and not status else b""), status

    async def xmedia_cl_graph_set_compress_config(
        self, graph: int, device_head_addr: int, head_size: int, break_line: int
    ) -> int:
        name = "xmedia_cl_graph_set_compress_config"
        return self._status(name, graph, device_head_addr, head_size, break_line)

    async def xmedia_cl_graph_communicate(self, graph: int) -> tuple[int, int]:
        return self._number("xmedia_cl_graph_communicate", graph)

    async def xmedia_cl_graph_decommunicate(self, graph: int, model_id: int) -> int:
        return self._status("xmedia_cl_graph_decommunicate", graph, model_id)

    async def xmedia_cl_set_profiling(self, graph: int, type: int, flag: int) -> int:  # noqa: A002
        return self._status("xmedia_cl_set_profiling", graph, ProfilingStruct(type, flag))

    # -- events ------------------------------------------------------------------------------------

    async def xmedia_cl_wait_for_events(self, events: list[int] | None) -> int:
        return self._status("xmedia_cl_wait_for_events", len(events or ()), _handles(events))

    async def xmedia_cl_query_event_status(self, event: int) -> tuple[int, int]:
        state = c_int32()
        status = self._status("xmedia_cl_query_event_status", event, byref(state))
        return state.value, status

    async def xmedia_cl_set_event_callback(self, event: int, status: int, notify: Notify | None) -> int:
        if notify is not None:
            self._notify[event] = notify
        callback = NOTIFY() if notify is None else self._callback
        return self._status("xmedia_cl_set_event_callback", event, status, callback, None)

    async def xmedia_cl_release_event(self, event: int) -> int:
        self._notify.pop(event, None)  # first: the library may give its address to another one at once
        return self._status("xmedia_cl_release_event", event)

    def _called(self, event: int | None, status: int, _data: int | None) -> None:
        """Called by the library: also for an event that is being released, or was."""
        if (notify := self._notify.get(event or 0)) is not None:
            notify(event or 0, status)

    # -- calls -------------------------------------------------------------------------------------

    def _call(self, name: str, *args: object) -> Any:
        if name in OPTIONAL:
            self.require(name)
        return self._functions[name](*args)

    def _status(self, name: str, *args: object) -> int:
        status: int = self._call(name, *args)
        return status

    def _number(self, name: str, graph: int) -> tuple[int, int]:
        number = c_uint32()
        status = self._status(name, graph, byref(number))
        return number.value, status

    def _handle(self, name: str, *args: object) -> tuple[int, int]:
        handle = c_void_p()
        status = self._status(name, *args, byref(handle))
        return handle.value or 0, status

    def _sizes(self, name: str, model: bytes | None) -> tuple[int, int, int]:
        work, weight = c_uint32(), c_uint32()
        status = self._status(name, model, byref(work), byref(weight))
        return work.value, weight.value, status

    def _info(self, name: str, model: bytes | None, info_type: int) -> tuple[MemInfo, int]:
        info = MemInfoStruct()
        status = self._status(name, model, byref(info), info_type)
        return MemInfo(*(getattr(info, field) for field in MemInfoStruct.names)), status

    def _private(self, name: str, model: bytes | None, size: int) -> tuple[bytes, int]:
        data = ctypes.create_string_buffer(size or 1)
        status = self._status(name, model, data, size)
        return (b"" if status else data.raw[:size]), status

    def _load(self, name: str, context: int, model: bytes | None, *memory: int) -> tuple[int, int]:
        return self._handle(name, byref(c_void_p(context)) if context else None, model, *memory)

    def _tensors(self, name: str, graph: int, number: int, io: InOut | None) -> int:
        if io is None:
            return self._status(name, graph, number, None)
        c_io = CInOut(io, room=number)
        status = self._status(name, graph, number, byref(c_io.struct))
        if number and not status:
            c_io.read_into(io)
        elif not status:
            io.num = c_io.struct.num
        return status


def shared_library(place: str | Path | None = None, *, revision: Revision | None = None) -> CtypesXmediaCl:
    """Return the one object that this process has for a library, however its path is spelled.

    Arguments and errors are those of `CtypesXmediaCl`. From any thread.
    """
    file = load_functions(place, revision).file
    with _sharing:
        if file not in _shared:  # each object's callback is kept for good
            _shared[file] = CtypesXmediaCl(place, revision=revision)
        return _shared[file]


def _handles(values: list[int] | None) -> Any:
    return None if values is None else (c_void_p * len(values))(*values)


def _values(array: Any) -> list[int]:
    return [each or 0 for each in array]
