"""Who watches a device group: telemetry, and tests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from repertory.models.program import Program
from repertory.transports.device import Completion

from .policy import Decision

if TYPE_CHECKING:  # a group has an observer
    from .group import DeviceGroup

__all__ = ["GroupObserver"]


class GroupObserver(ABC):
    """Is told what a group does, on the event loop, between two of its steps. Must not raise.

    Attributes:
        wants_frames: whether it wants to be told of each frame.
    """

    wants_frames: bool

    @abstractmethod
    def decided(self, group: DeviceGroup, decision: Decision, now: float) -> None:
        """The policy answered."""

    @abstractmethod
    def swapped(self, group: DeviceGroup, program: Program, began: float, ended: float) -> None:
        """A program was made resident."""

    @abstractmethod
    def evicted(self, group: DeviceGroup, program: Program, why: str) -> None:
        """A program had to make room; `why` says for which one."""

    @abstractmethod
    def finished(self, group: DeviceGroup, completion: Completion, now: float) -> None:
        """A started frame completed on the device."""

    @abstractmethod
    def opened(self, group: DeviceGroup) -> None:
        """The device is open and in service."""

    @abstractmethod
    def failed(self, group: DeviceGroup, error: BaseException) -> None:
        """The device is out of service; the supervisor will open it again, or gives up."""
