"""`xmedia_cl_init`, devices and contexts."""

from __future__ import annotations

from typing import Final

from repertory.transports.xm_npu.cl.library import DeviceType
from repertory.transports.xm_npu.errors import ClStatus

from .system_calls import SystemCalls

__all__ = ["DeviceCalls"]

_CPU: Final = 0x100
_NPU: Final = 0x200


class DeviceCalls(SystemCalls):
    """One context for the process, counted."""

    async def xmedia_cl_init(self) -> int:
        self._process.uses += 1
        return ClStatus.SUCCESS

    async def xmedia_cl_uninit(self) -> int:
        process = self._process
        alive = process.context_refs or process.graphs
        if process.uses < 1 or (process.uses == 1 and alive):
            return ClStatus.INVALID_OPERATION
        process.uses -= 1
        return ClStatus.SUCCESS

    async def xmedia_cl_get_device_ids(
        self, device_type: int, devices: list[int] | None, num_devices: int | None
    ) -> tuple[int, int]:
        if num_devices is None:
            return 0, ClStatus.INVALID_VALUE
        if not DeviceType.CPU <= device_type <= DeviceType.ALL:
            return num_devices, ClStatus.INVALID_DEVICE_TYPE
        found = self._devices(device_type)
        if devices is None:
            return num_devices or len(found), ClStatus.SUCCESS
        count = min(num_devices, len(found))
        devices[:count] = found[:count]
        return count, ClStatus.SUCCESS

    async def xmedia_cl_release_device_ids(self, devices: list[int] | None, num_devices: int) -> int:
        if not devices or num_devices == 0 or not all(devices[:num_devices]):
            return ClStatus.INVALID_DEVICE
        return ClStatus.SUCCESS

    async def xmedia_cl_create_context(self, num_devices: int, devices: list[int] | None) -> tuple[int, int]:
        process = self._process
        total = len(self._devices(DeviceType.ALL))
        if num_devices == 0 or devices is None:
            return 0, ClStatus.INVALID_VALUE
        if num_devices != total and not self._machine.params.any_device_list:
            return 0, ClStatus.INVALID_VALUE
        if not all(devices[:num_devices]):
            return 0, ClStatus.INVALID_DEVICE
        process.context = process.context or process.handle()
        process.context_refs += 1
        return process.context, ClStatus.SUCCESS

    async def xmedia_cl_release_context(self, context: int) -> int:
        process = self._process
        if not context or context != process.context or not process.context_refs:
            return ClStatus.INVALID_CONTEXT
        process.context_refs -= 1
        if not process.context_refs:
            process.context, process.workspace = 0, None
            if process.graphs:
                self._note(f"the context is released while {len(process.graphs)} graphs are loaded")
            self._machine.call(lambda _now: process.close_queue())
        return ClStatus.SUCCESS

    async def xmedia_cl_set_workspace_addr(self, context: int, addr: int, worksize: int) -> int:
        self.require("xmedia_cl_set_workspace_addr")
        if not context or context != self._process.context or not addr or not worksize:
            return ClStatus.INVALID_VALUE
        if self._process.workspace is not None:
            return ClStatus.CONTEXT_WORKSPACE_FAIL
        self._process.workspace = (addr, worksize)
        return ClStatus.SUCCESS

    async def xmedia_cl_get_workspace_addr(self, context: int) -> tuple[int, int, int]:
        self.require("xmedia_cl_get_workspace_addr")
        if not context or context != self._process.context:
            return 0, 0, ClStatus.INVALID_VALUE
        if self._process.workspace is None:
            return 0, 0, ClStatus.CONTEXT_WORKSPACE_FAIL
        return *self._process.workspace, ClStatus.SUCCESS

    def _devices(self, kind: int) -> list[int]:
        params = self._machine.params
        npus = [_NPU + index for index in range(params.devices if params.present else 0)]
        return {DeviceType.CPU: [_CPU], DeviceType.NPU: npus}.get(DeviceType(kind), [_CPU, *npus])
