"""The calls that name a device group: locks, counts, configuration, features, sleep."""

from __future__ import annotations

from typing import Final

from repertory.transports.memx.constants import Status

from .border import call, call_giving
from .machine import Machine
from .rules import StatusError

__all__ = ["GroupCalls"]

_LOOK: Final = 0.001
"""Seconds between two looks at a lock file that another process holds."""


class GroupCalls(Machine):
    """A part of `Libmemx`."""

    @call
    async def memx_lock(self, group_id: int) -> int:
        await self._until(lambda _: self._locks.take_mutex(group_id))
        try:
            await self._until(lambda _: self._locks.take_file(group_id), step=_LOOK)
        except StatusError:
            raise
        except BaseException:  # whoever waited was interrupted, and does not come back
            self._do(lambda _: self._locks.unlock(group_id))
            raise
        return Status.OK

    @call
    async def memx_trylock(self, group_id: int) -> int:
        return self._do(lambda _: self._locks.trylock(group_id))

    @call
    async def memx_unlock(self, group_id: int) -> int:
        return self._do(lambda _: self._locks.unlock(group_id))

    @call
    async def memx_config_mpu_group(self, group_id: int, mpu_group_config: int) -> int:
        self._admin.check_config(group_id, mpu_group_config)
        await self._command(group_id)
        return self._do(lambda now: self._admin.config_mpu_group(group_id, mpu_group_config, now))

    @call_giving(0)
    async def memx_get_total_chip_count(self, group_id: int) -> tuple[int, int]:
        return Status.OK, self._read(lambda _: len(self._core.group(group_id).chips.all))

    @call
    async def memx_operation_get_device_count(self) -> tuple[int, int]:
        return Status.OK, len(self._core.groups)

    @call_giving(0)
    async def memx_operation_get_mpu_group_count(self, group_id: int) -> tuple[int, int]:
        return Status.OK, self._read(lambda _: self._core.group(group_id).halves)

    @call_giving(b"")
    async def memx_get_feature(self, group_id: int, chip_id: int, opcode: int) -> tuple[int, bytes]:
        await self._command(group_id)
        return Status.OK, self._read(lambda now: self._admin.get_feature(group_id, chip_id, opcode, now))

    @call
    async def memx_set_feature(self, group_id: int, chip_id: int, opcode: int, parameter: int) -> int:
        await self._command(group_id)
        return self._do(lambda now: self._admin.set_feature(group_id, chip_id, opcode, parameter, now))

    @call
    async def memx_enter_device_deep_sleep(self, group_id: int) -> int:
        await self._command(group_id)
        return self._do(lambda now: self._admin.sleep(group_id, now))

    @call
    async def memx_exit_device_deep_sleep(self, group_id: int) -> int:
        await self._command(group_id)
        return self._do(lambda now: self._admin.wake(group_id, now))
