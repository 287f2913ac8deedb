"""The simulated libmemx as a state machine: no input or output, no thread, and no clock of its own.

Here are contexts and their streams; `downloads.py`, `admin.py` and `locks.py` have the rest. It behaves as
the vendor documents, or with the traps of `profile.py`; statuses are those observed on libmemx 2.11.2. What
the vendor leaves undefined, or what hardware answers with garbage, a hang or a crash, is a `SimulatorFault`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, final

from repertory.transports.memx.constants import CONTEXTS, FLOWS, QUEUE_SIZES, TIMEOUT_LIMIT_MS, Status
from repertory.transports.memx.features import PowerState

from .board import Context, Group, Halt, Load
from .flow import Flow
from .lane import Activity, Lane
from .profile import Trap
from .rules import (
    SimulatorFault,
    StatusError,
    check_disabled,
    check_idle,
    check_placed,
    check_quiet,
    check_unfed,
)

if TYPE_CHECKING:
    from .image import ChipPort
    from .parameters import SimulatedMx3

__all__ = ["Core"]

_OLDEST_FIRMWARE: Final = 6
"""Revision below which libmemx opens no context."""


@final
class Core:
    """Groups and contexts. Methods raise `StatusError` for what libmemx refuses.

    Attributes:
        mx3: what is simulated.
        groups: the device groups.
        downloaded: whether anything was downloaded in this process.
        last_download: the id that was downloaded to last, until something clears it; see `Trap`.
    """

    def __init__(self, mx3: SimulatedMx3) -> None:
        self.mx3 = mx3
        self.groups = [Group(index, mx3) for index in range(mx3.groups)]
        self.downloaded = False
        self.last_download: int | None = None
        self._contexts: dict[int, Context] = {}

    def advance(self, now: float) -> None:
        """Do all that happens by itself up to `now`."""
        for context in self._contexts.values():
            context.advance(now)

    def next_event(self, now: float) -> float:
        """Return when something next happens by itself, strictly after `now`; `math.inf` for never."""
        self.advance(now)
        return min((context.next_event() for context in self._contexts.values()), default=math.inf)

    def open(self, model_id: int, group_id: int) -> None:
        """Open a context, or count one more use."""
        _check_model_id(model_id)
        group = self.group(group_id)
        if Halt.GONE in group.halts:
            raise StatusError(Status.TRANSPORT_OPEN_FAILED)
        if self.mx3.firmware < _OLDEST_FIRMWARE:
            raise StatusError(Status.FIRMWARE_TOO_OLD)
        context = self._contexts.get(model_id)
        if context is None:
            self._contexts[model_id] = Context(model_id, group)
        elif context.group is group:
            context.refs += 1
        else:
            raise StatusError(Status.CONTEXT_ON_OTHER_GROUP)

    def close_hangs(self, model_id: int) -> bool:
        """Whether a close would wait for transfers that never end."""
        context = self._contexts.get(model_id)
        return context is not None and context.refs == 1 and context.stuck()

    def close(self, model_id: int, now: float) -> None:
        """Count one use less."""
        _check_model_id(model_id)
        self.last_download = None
        context = self._contexts.get(model_id)
        if context is None:
            if Trap.CLOSE_OF_CLOSED in self.mx3.traps:
                raise StatusError(Status.CONTEXT_NOT_OPEN)
        elif context.refs > 1:
            context.refs -= 1
        else:
            context.advance(now)
            check_quiet(context, "memx_close")
            context.leave()
            context.closed = Trap.FORGOTTEN_CALLER not in self.mx3.traps
            del self._contexts[model_id]

    def reconfigure(self, model_id: int, group_id: int, now: float) -> None:
        """Bind a context to a group; nothing is loaded afterwards, nor known to be on the chips."""
        context = self.context(model_id)
        group = self.group(group_id)
        context.advance(now)
        check_quiet(context, "memx_reconfigure")
        check_unfed(context, "memx_reconfigure")
        check_idle(group, "memx_reconfigure", now)
        check_disabled((context, *group.contexts.values()), "memx_reconfigure")
        context.bind(group)

    def set_ifmap_queue_size(self, model_id: int, size: int) -> None:
        """Store a size for the next download."""
        context = self.context(model_id)
        context.slots = (_queue_size(size), context.slots[1])

    def set_ofmap_queue_size(self, model_id: int, size: int) -> None:
        """Store a size for the next download."""
        context = self.context(model_id)
        context.slots = (context.slots[0], _queue_size(size))

    def abort_read(self, model_id: int, now: float) -> None:
        """Let nothing move any more, so that a close does not wait."""
        context = self.context(model_id)
        context.advance(now)
        context.aborted = True

    def set_powerstate(self, model_id: int, state: int, now: float) -> None:
        """Let the context's group run models, or sleep."""
        group = self.context(model_id).group
        if not PowerState.PS0 <= state < PowerState.PS4:
            raise StatusError(Status.BAD_ARGUMENT)
        if state <= PowerState.PS1:
            group.resume(Halt.ASLEEP, now)
        else:
            group.halt(Halt.ASLEEP, now)
        if state == PowerState.PS3:
            self.last_download = None

    def enable(self, model_id: int, now: float) -> None:
        """Let frames move."""
        context = self.context(model_id)
        check_placed(context, "memx_set_stream_enable")
        context.advance(now)
        context.activity = Activity.RUNNING

    def disable(self, model_id: int, now: float, *, drain: bool) -> None:
        """Let no frame move any more, or with `drain` let those on the chips leave; see `settled`."""
        context = self.context(model_id)
        context.advance(now)
        if context.enabled:
            context.activity = Activity.DRAINING if drain else Activity.PAUSED
            context.advance(now)

    def settled(self, model_id: int, now: float) -> bool:
        """Whether a drain has ended, as nothing of the context moves; never on a hung group."""
        context = self._contexts.get(model_id)
        if context is None:
            return True
        context.advance(now)
        return not context.stuck() and context.activity is not Activity.DRAINING

    def flow_port(self, model_id: int, flow_id: int, *, output: bool, unknown: Status) -> ChipPort:
        """Return what a flow is configured for, or refuse with `unknown`."""
        if not 0 <= model_id < CONTEXTS:
            raise StatusError(Status.BAD_ENGINE)
        if model_id not in self._contexts:
            raise SimulatorFault(f"size of a flow of context {model_id}, which is not open: libmemx crashes")
        if (found := _find(self._contexts[model_id].load, flow_id, output=output)) is None:
            raise StatusError(unknown)
        return found[1]

    def flow(self, model_id: int, flow_id: int, timeout_ms: int, *, output: bool, null: bool) -> Flow:
        """Find the channel for a stream call, with its checks in the library's order."""
        context = self.context(model_id)
        load = context.load
        if load is not None and not 0 <= flow_id < FLOWS:
            raise StatusError(Status.BAD_FLOW_ID)
        if load is None or (found := _find(load, flow_id, output=output)) is None:
            raise StatusError(
                Status.OUTPUT_FLOW_NOT_CONFIGURED if output else Status.INPUT_FLOW_NOT_CONFIGURED
            )
        if null:
            raise StatusError(Status.NULL_POINTER)
        if not 0 <= timeout_ms < TIMEOUT_LIMIT_MS:
            raise StatusError(Status.BAD_ARGUMENT)
        return Flow(context, load, *found, output)

    def lent_flow(self, model_id: int, flow_id: int, timeout_ms: int, *, output: bool) -> Flow:
        """Find the channel for a call with a buffer of the library."""
        self.context(model_id)
        if not self.downloaded:
            raise StatusError(Status.NOTHING_DOWNLOADED)
        return self.flow(model_id, flow_id, timeout_ms, output=output, null=False)

    def context(self, model_id: int) -> Context:
        """Return an open context."""
        _check_model_id(model_id)
        if model_id not in self._contexts:
            raise StatusError(Status.CONTEXT_NOT_OPEN)
        return self._contexts[model_id]

    def group(self, group_id: int) -> Group:
        """Return a group."""
        if not 0 <= group_id < len(self.groups):
            raise StatusError(Status.BAD_GROUP_ID)
        return self.groups[group_id]


def _check_model_id(model_id: int) -> None:
    if not 0 <= model_id < CONTEXTS:
        raise StatusError(Status.BAD_MODEL_ID)


def _queue_size(size: int) -> int:
    if size not in QUEUE_SIZES:
        raise StatusError(Status.BAD_QUEUE_SIZE)
    return size


def _find(load: Load | None, flow_id: int, *, output: bool) -> tuple[Lane, ChipPort] | None:
    if load is None:
        return None
    return (load.outputs if output else load.inputs).get(flow_id)
