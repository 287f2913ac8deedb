"""Commands to a group's firmware: configuration, features, sleep."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, final

from repertory.transports.memx.constants import GROUP_CONFIGS, HALVES_CONFIG, Status
from repertory.transports.memx.features import GetFeature, Operation

from .board import Group, Halt
from .profile import PROFILES
from .readings import read, write
from .rules import SimulatorFault, StatusError, check_disabled, check_idle

if TYPE_CHECKING:
    from repertory.models.formats import Bytes

    from .core import Core

__all__ = ["Admin"]

_KERNEL_PATIENCE: Final = 3.0
"""Seconds after which the kernel gives up a command."""

_OPERANDS: Final = MappingProxyType[int, int](
    {operation: operation is not Operation.RESET_DEVICE for operation in Operation}
)
"""Bytes that an operation reads or writes at least."""


@final
class Admin:
    """Carries out commands for a core."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def seconds(self, group_id: int) -> float:
        """Return how long a command to this group takes."""
        group = self._core.group(group_id)
        if Halt.GONE in group.halts:
            return 0.0
        return _KERNEL_PATIENCE if group.slow_admin else self._core.mx3.admin_ms / 1e3

    def check(self, group_id: int, *, gone: Status) -> Group:
        """Return the group, unless its firmware does not answer; `gone` is for a node that vanished."""
        group = self._core.group(group_id)
        if Halt.GONE in group.halts:
            raise StatusError(gone)
        if group.slow_admin:
            raise StatusError(Status.ADMIN_TIMEOUT)
        return group

    def check_config(self, group_id: int, config: int) -> None:
        """Refuse a configuration that there is not, or that needs more chips."""
        group = self._core.group(group_id)
        if not 0 <= config < len(GROUP_CONFIGS):
            raise StatusError(Status.BAD_ARGUMENT)
        if len(group.chips.all) < GROUP_CONFIGS[config]:
            raise StatusError(Status.NOT_ENOUGH_CHIPS)

    def config_mpu_group(self, group_id: int, config: int, now: float) -> None:
        """Set how many chips work together; what they held is gone, the contexts' shapes stay."""
        self.check_config(group_id, config)
        group = self.check(group_id, gone=Status.IOCTL_FAILED)
        check_idle(group, "memx_config_mpu_group", now)
        check_disabled(group.contexts.values(), "memx_config_mpu_group")
        group.halves = 2 if config == HALVES_CONFIG else 1
        group.configured = GROUP_CONFIGS[config] // group.halves
        group.forget()
        self._core.last_download = None

    def check_operation(self, model_id: int, command: int, data: Bytes | None) -> Group:
        """Return the group of an operation, unless it is refused without asking the firmware."""
        group = self._core.context(model_id).group
        if command not in _OPERANDS:
            raise StatusError(Status.BAD_COMMAND)
        if data is None:
            raise StatusError(Status.NULL_POINTER)
        if data.nbytes < _OPERANDS[command]:
            raise SimulatorFault(f"memx_operation {command} came with {data.nbytes} bytes")
        return group

    def operate(self, group: Group, command: int, data: Bytes, now: float) -> None:
        """Carry out an operation."""
        if command == Operation.READ_TOTAL_CHIP_COUNT:
            data[0] = len(group.chips.all)
        elif command == Operation.GET_FW_DOWNLOAD_STATUS:
            data[0] = 0
        elif command == Operation.CONFIG_MPU_GROUP:
            self.config_mpu_group(group.index, int(data[0]), now)
        elif command == Operation.RESET_DEVICE:
            self.reset(group.index, now)
        elif command == Operation.SET_QSPI_RESET_RELEASE:
            group.settings[GetFeature.QSPI_RESET_RELEASE] = int(data[0])
        else:
            data[0] = group.settings.get(GetFeature.QSPI_RESET_RELEASE, 0)

    def reset(self, group_id: int, now: float) -> None:
        """Restart the chips: what they held is gone."""
        group = self.check(group_id, gone=Status.GENERIC_FAILURE)
        check_idle(group, "memx_operation", now)
        check_disabled(group.contexts.values(), "memx_operation")
        group.forget()

    def get_feature(self, group_id: int, chip_id: int, opcode: int, now: float) -> bytes:
        """Read a feature."""
        group = self.check(group_id, gone=Status.GENERIC_FAILURE)
        if not 0 <= opcode < PROFILES[self._core.mx3.profile].readable:
            raise StatusError(Status.BAD_ARGUMENT)
        group.advance(now)
        return read(group, chip_id, opcode, self._core.mx3, now)

    def set_feature(self, group_id: int, chip_id: int, opcode: int, parameter: int, now: float) -> None:
        """Set a feature."""
        group = self.check(group_id, gone=Status.GENERIC_FAILURE)
        if not 0 <= opcode < PROFILES[self._core.mx3.profile].writable:
            raise StatusError(Status.BAD_ARGUMENT)
        group.advance(now)
        write(group, chip_id, opcode, parameter)

    def sleep(self, group_id: int, now: float) -> None:
        """Let a group stand still until it is woken."""
        self.check(group_id, gone=Status.GENERIC_FAILURE).halt(Halt.ASLEEP, now)

    def wake(self, group_id: int, now: float) -> None:
        """Let a group go on."""
        self.check(group_id, gone=Status.GENERIC_FAILURE).resume(Halt.ASLEEP, now)
