"""Requests to the child that wait for their answers, each for so long and no longer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, final

import anyio

from repertory.models.errors import DeviceHung, RepertoryError
from repertory.transports.loop import Loop, Slot

from .failures import unpack
from .messages import Answer, Bound, Closed, Opened, Probed, Refused, Request

__all__ = ["Requests"]

A = TypeVar("A", Opened, Bound, Probed, Closed)


@final
class _Asked:
    """A request on its way; `slot` is filled with the answer, or with what went wrong."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self.answer: Answer | None = None
        self.error: RepertoryError | None = None


@final
class Requests:
    """The requests of one device; several may be out at once.

    Args:
        loop: of the owner.
        send: brings a request on its way.
        name: of the child, for errors.
        family: for errors.
        silent: told of a request that got no answer, before it raises.
    """

    def __init__(
        self,
        loop: Loop,
        send: Callable[[Request], None],
        *,
        name: str,
        family: str,
        silent: Callable[[DeviceHung], None],
    ) -> None:
        self._loop = loop
        self._send = send
        self._name = name
        self._family = family
        self._silent = silent
        self._asked: dict[int, _Asked] = {}
        self._count = 0

    def number(self) -> int:
        """Return a serial for a new request."""
        self._count += 1
        return self._count

    async def ask(self, request: Request, kind: type[A], *, bound: float, shield: bool = True) -> A:
        """Send a request and return its answer, within `bound` seconds; shielded unless told otherwise.

        Raises:
            DeviceHung: there was none.
            RepertoryError: what the request raised in the child, or what ended the child.
        """
        asked = self._asked[request.serial] = _Asked(self._loop.slot())
        self._send(request)
        try:
            with anyio.move_on_after(bound, shield=shield):
                await asked.slot
        finally:
            self._asked.pop(request.serial, None)
        if asked.error is not None:
            raise asked.error
        if not isinstance(asked.answer, kind):
            call = type(request).__name__.lower()
            text = f"{call}: {self._name} has not answered within {bound:g} s"
            hung = DeviceHung(text, family=self._family, call=call)
            self._silent(hung)
            raise hung
        return asked.answer

    def settle(self, answer: Answer) -> None:
        """An answer has come; nobody may wait for it any more."""
        if isinstance(answer, Refused):
            self._fill(answer.serial, error=unpack(answer.failure))
        else:
            self._fill(answer.serial, answer)

    def fail(self, error: RepertoryError) -> None:
        """No more answers will come."""
        for serial in list(self._asked):
            self._fill(serial, error=error)

    def _fill(self, serial: int, answer: Answer | None = None, error: RepertoryError | None = None) -> None:
        asked = self._asked.pop(serial, None)
        if asked is not None:
            asked.answer, asked.error = answer, error
            self._loop.fill(asked.slot)
