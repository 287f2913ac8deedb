"""The handle of a loaded model: `await model.infer(x)`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from threading import get_ident
from typing import Any, cast, final

import anyio
import numpy as np
from anyio.lowlevel import checkpoint

from repertory.actors.context import ModelContext
from repertory.actors.limits import PRIORITIES, Overflow
from repertory.models.checks import is_a
from repertory.models.errors import (
    DeadlineUnreachable,
    InvalidInput,
    QueueFull,
    RepertoryError,
    RuntimeClosed,
)
from repertory.models.spec import Array, TensorSpec
from repertory.transports.frame import Frame, Outcome
from repertory.transports.loop import Loop

__all__ = ["Model"]

_REAL = (int, float, np.integer, np.floating)
_MOMENT = 0.1  # seconds; a scope whose deadline has passed is cancelled in the event loop's next steps


@final
class Model:
    """One network of a loaded file. Made by `Runtime.load`; usable from any task of that event loop.

    Args:
        context: the model's books and backlog.
        loop: the event loop's seam.
    """

    def __init__(self, context: ModelContext, loop: Loop) -> None:
        self._context = context
        self._loop = loop
        self._thread = get_ident()
        self._inputs = context.network.inputs
        self._outputs = tuple(spec.name for spec in context.network.outputs)
        only = self._inputs[0] if len(self._inputs) == 1 else None
        self._only = only
        plain = only is not None and only.fixed and only.limits is None
        self._shape = only.shape if only is not None and plain else None
        self._dtype = only.dtype if only is not None else None
        self._nbytes = sum(s.nbytes for s in self._inputs) if all(s.fixed for s in self._inputs) else 0

    @property
    def name(self) -> str:
        """The name it was loaded under."""
        return self._context.name

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """What `infer` takes."""
        return self._inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """What `infer` returns."""
        return self._context.network.outputs

    async def infer(
        self,
        inputs: object,
        *,
        timeout: float | None = None,
        deadline: float | None = None,
        priority: int | None = None,
    ) -> Any:
        """Run the network once.

        Args:
            inputs: an ndarray, or anything with `__array__` or DLPack; for several inputs a mapping from
                their names. Dtypes as in `inputs`: native ones pass without a copy. The memory is borrowed
                until the device has completed the frame, which after a cancel is later than the return.
            timeout: seconds from now; without it and a deadline that of the model's limits.
            deadline: the same as a moment on the loop's clock (`anyio.current_time()`). Of both, the earlier
                one counts, as does the deadline of the caller's own cancel scopes where that is earlier.
            priority: larger is more urgent; -128 to 127. That of the model's limits without it.

        Returns:
            The output as an ndarray that is the caller's own; a dict by name where there are several.

        Raises:
            InvalidInput: a tensor is wrong; nothing was queued.
            QueueFull: the model's queue is full (`overflow="refuse"`), or no place became free by the
                request's own deadline (`overflow="wait"`), or too much waits in all models together.
            Superseded: a newer frame took this one's place (`overflow="drop_oldest"`).
            DeadlineUnreachable: the deadline has passed or cannot be met: told at once, or while the request
                waits, as soon as that is known; nothing was computed.
            DeadlineExceeded: the deadline passed in the queue or on the device.
            ModelClosed, RuntimeClosed: it was unloaded, or the runtime closed.
            DeviceError: the device failed on this frame, or is out of service for good.
        """
        context = self._context
        if context.refusal is not None or get_ident() != self._thread:
            raise self._closed()
        frame, own = self._frame(inputs, timeout, deadline, priority)
        slot = frame.slot = self._loop.slot()
        if frame.deadline == -math.inf:
            await self._leave_if_cancelled()
        if context.limits.overflow is Overflow.WAIT:
            await self._wait_for_room(frame.nbytes, own)
        try:
            context.offer(frame, expires=own)
        except DeadlineUnreachable:
            left = frame.deadline - self._loop.now()
            if left < _MOMENT and frame.deadline < own:
                await self._leave_to_the_caller(left)
            raise
        try:
            await slot
        finally:
            if frame.outcome is None:
                context.cancel(frame)
        if frame.outcome is not Outcome.ANSWERED:
            await self._raise_end(frame, own)
        outputs = frame.outputs
        assert outputs is not None, "an answer has outputs"
        return outputs[0] if len(outputs) == 1 else dict(zip(self._outputs, outputs, strict=True))

    def _closed(self) -> RepertoryError:
        """Return why nothing is admitted here."""
        if get_ident() != self._thread:
            return RuntimeClosed(f"{self.name} belongs to the event loop of another thread")
        return self._context.refused_by()

    def _frame(
        self, inputs: object, timeout: float | None, deadline: float | None, priority: int | None
    ) -> tuple[Frame, float]:
        """Check what came; return it as a frame, and the moment at which the runtime itself ends it."""
        context = self._context
        limits = context.limits
        arrays = self._arrays(inputs)
        own = math.inf
        if timeout is not None or deadline is not None or limits.timeout is not None:
            own = self._own(timeout, deadline)
        caller = self._loop.caller_deadline()
        frame = Frame(
            context,
            context.network,
            arrays,
            None,
            own if own < caller else caller,  # noqa: FURB136  (min() costs a call on every request's way)
            limits.priority if priority is None else self._checked(priority),
            self._nbytes or sum(array.nbytes for array in arrays),
        )
        return frame, own

    async def _raise_end(self, frame: Frame, own: float) -> None:
        """Raise what a request ended in."""
        if frame.outcome is Outcome.EXPIRED and frame.deadline < own:
            await self._leave_to_the_caller(frame.deadline - self._loop.now())
        assert frame.error is not None, "every outcome but an answer has its error"
        raise frame.error

    def _own(self, timeout: float | None, deadline: float | None) -> float:
        """Return the moment at which the runtime itself ends the request."""
        if timeout is None and deadline is None:
            timeout = self._context.limits.timeout
        for name, value in (("timeout", timeout), ("deadline", deadline)):
            if value is not None and (is_a(value, bool) or not is_a(value, *_REAL) or math.isnan(value)):
                raise self._invalid(f"{name} is not a number: {value!r}")
        moment = math.inf if deadline is None else deadline
        return moment if timeout is None else min(moment, self._loop.now() + timeout)

    def _checked(self, priority: int) -> int:
        if is_a(priority, bool) or not is_a(priority, int, np.integer) or priority not in PRIORITIES:
            raise self._invalid(f"priority {priority!r} came, -128 to 127 is wanted")
        return int(priority)

    def _arrays(self, inputs: object) -> tuple[Array, ...]:
        """Check what the caller gave; first the common case, as cheaply as can be."""
        if type(inputs) is np.ndarray and inputs.shape == self._shape and inputs.dtype == self._dtype:
            return (inputs,)
        try:
            if self._only is None or _is_mapping(inputs):
                return self._by_name(inputs)
            return (self._only.check(inputs),)
        except InvalidInput as error:
            raise self._invalid(str(error)) from None

    def _invalid(self, what: str) -> InvalidInput:
        self._context.refused["invalid"] += 1
        return InvalidInput(f"{self.name}: {what}")

    def _by_name(self, inputs: object) -> tuple[Array, ...]:
        names = [spec.name for spec in self._inputs]
        if not isinstance(inputs, Mapping):
            raise InvalidInput(f"a {type(inputs).__name__} came, a mapping with {names} is wanted")
        given: dict[object, object] = dict(cast("Mapping[object, object]", inputs))
        if given.keys() != set(names):
            raise InvalidInput(f"inputs {sorted(map(str, given))} came, {names} are wanted")
        return tuple(spec.check(given[spec.name]) for spec in self._inputs)

    async def _wait_for_room(self, nbytes: int, own: float) -> None:
        """Wait, where the queue is full; what is not admitted by its own deadline is refused."""
        try:
            with anyio.move_on_at(own) as scope:
                await self._context.places.room(nbytes)
        except BaseException:
            self._context.refused["cancelled"] += 1
            raise
        if scope.cancelled_caught:
            self._context.refused["full"] += 1
            raise QueueFull(f"{self.name}: no place became free by the deadline")

    async def _leave_if_cancelled(self) -> None:
        """Raise the caller's cancellation, where it came before this request."""
        refused = self._context.refused
        refused["cancelled"] += 1
        await checkpoint()
        refused["cancelled"] -= 1  # the deadline alone is that far back

    async def _leave_to_the_caller(self, left: float) -> None:
        """Let the caller's own scope, which ends in so many seconds, end the request in its own way."""
        with anyio.move_on_after(max(0.0, left) + _MOMENT):
            await anyio.sleep_forever()

    def __repr__(self) -> str:
        return f"<Model {self.name}>"


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)
