"""The process that something of the library belongs to: a forked child has copies that it must not use."""

from __future__ import annotations

import os
from typing import final

from repertory.models.errors import DeviceLost

__all__ = ["Process"]


@final
class Process:
    """The process in which this was made."""

    def __init__(self) -> None:
        self._number = os.getpid()

    @property
    def inherited(self) -> bool:
        """Whether this is a fork of that process."""
        return self._number != os.getpid()

    def check(self) -> None:
        """Refuse what a forked child asks of its parent's library.

        Raises:
            DeviceLost: this is a child; names both processes.
        """
        if self.inherited:
            raise DeviceLost(
                f"the NPU was opened by process {self._number}, this is {os.getpid()}: its memory is bound"
                " to that one; open it in a process that is started anew, not forked",
                family="xm-npu",
            )
