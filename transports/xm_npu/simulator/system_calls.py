"""`xmedia_sys_*` and `xmedia_mmz_*`."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final

from repertory.transports.xm_npu.errors import SysStatus

from .calls import LibraryCalls

__all__ = ["SystemCalls"]

_STATUSES: Final = {
    errno.EPERM: SysStatus.NOT_PERMITTED,
    errno.EBUSY: SysStatus.BUSY,
    errno.ENOMEM: SysStatus.NOT_ENOUGH_MEMORY,
    errno.EFAULT: SysStatus.BAD_ADDRESS,
    errno.EINVAL: SysStatus.INVALID_PARAM,
}


class SystemCalls(LibraryCalls):
    """The system module and its memory. How the driver's errnos become statuses is not known: our choice."""

    def memory(self, virt: int, size: int) -> memoryview:
        with self._machine.condition:
            found = self._at(virt)
            if found is None:
                raise ValueError(f"nothing is mapped at {virt:#x}: a process that looks there dies")
            return found[0].view(found[1], size)

    async def xmedia_sys_init(self) -> int:
        if not self._machine.params.present:
            return SysStatus.OPEN_FAILED
        self._process.system = True
        return SysStatus.SUCCESS

    async def xmedia_sys_exit(self) -> int:
        was, self._process.system = self._process.system, False
        return SysStatus.SUCCESS if was else SysStatus.CLOSE_FAILED

    async def xmedia_mmz_init(self) -> None:
        self.require("xmedia_mmz_init")

    async def xmedia_mmz_exit(self) -> None:
        """Close the memory's node: what is left is a leak."""
        self.require("xmedia_mmz_exit")
        self._machine.call(lambda _now: self._machine.mmz.close(self._process.owner))

    async def xmedia_mmz_alloc(self, mmz_name: bytes | None, buf_name: bytes | None, size: int) -> int:
        params = self._machine.params
        if not (params.present and params.privileged):
            return 0
        zone, name, owner = mmz_name or b"", buf_name or b"", self._process.owner
        return self._tried(lambda: self._machine.mmz.alloc(zone, name, size, owner).phys)[0]

    async def xmedia_mmz_free(self, phy: int) -> int:
        return self._tried(lambda: self._machine.mmz.free(phy, self._process.owner))[1]

    async def xmedia_mmz_map(self, phy: int, size: int, cached: bool) -> int:  # noqa: FBT001
        return self._tried(lambda: self._machine.mmz.map(phy, size, cached=cached).address)[0]

    async def xmedia_mmz_unmap(self, virt: int) -> int:
        found = self._at(virt)
        if found is None:
            return SysStatus.NOT_ENOUGH_MEMORY
        return self._tried(lambda: self._machine.mmz.unmap(found[0]))[1]

    async def xmedia_mmz_flush_cache(self, phy: int, virt: int, size: int) -> int:
        found = self._at(virt)
        if found is None or found[0] is not self._machine.mmz.block(phy, 1):
            return SysStatus.BAD_ADDRESS
        return self._tried(lambda: self._machine.mmz.flush(phy, size, offset=found[1]))[1]

    async def xmedia_mmz_virt_to_phy(self, virt: int) -> tuple[int, int]:
        self.require("xmedia_mmz_virt_to_phy")
        found = self._at(virt)
        return (found[0].phys + found[1], 0) if found else (0, SysStatus.BAD_ADDRESS)

    async def xmedia_mmz_is_cached(self, virt: int) -> tuple[bool, int]:
        self.require("xmedia_mmz_is_cached")
        found = self._at(virt)
        return (found[0].cached, 0) if found else (False, SysStatus.BAD_ADDRESS)

    def _tried(self, operation: Callable[[], int | None]) -> tuple[int, int]:
        """Return an operation's value and status; 0 as the value where it fails."""
        try:
            return self._machine.call(lambda _now: operation()) or 0, SysStatus.SUCCESS
        except OSError as error:
            return 0, _STATUSES.get(error.errno or 0, SysStatus.FAILURE)
