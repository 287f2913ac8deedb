"""The border of the simulated library, which every call crosses."""

from __future__ import annotations

import functools
import os
from abc import abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast, final

from repertory.transports.memx.library import REQUIRED, Libmemx

from .rules import SimulatorFault, StatusError

__all__ = ["Bordered", "Call", "Record", "call", "call_giving"]

M = TypeVar("M", bound=Callable[..., Coroutine[Any, Any, Any]])


@final
class Call(NamedTuple):
    """One call that returned."""

    name: str
    args: tuple[Any, ...]
    status: int


Record: TypeAlias = Callable[[Call], None]


class Bordered(Libmemx):
    """What the border needs to know of the library.

    Attributes:
        record: told of every call that returns, such as a list's `append`; or None.
        process: the process that it lives in.
        faults: every `SimulatorFault` raised so far. A test asserts that there is none, for whoever drives
            the library may have caught it.
    """

    def __init__(self, exports: frozenset[str], record: Record | None) -> None:
        self.exports = exports
        self.record = record
        self.faults: list[SimulatorFault] = []
        self.process = os.getpid()

    @abstractmethod
    def forked(self) -> None:
        """Called once in a process that was forked, before its first call."""


def call(method: M) -> M:
    """Let refusals become statuses, record calls, and keep faults."""
    return _crossing(method, ())


def call_giving(*nothing: object) -> Callable[[M], M]:
    """Do as `call`, for a method that gives more than a status: `nothing` follows that of a refusal."""
    return lambda method: _crossing(method, nothing)


def _crossing(method: M, nothing: tuple[object, ...]) -> M:
    name = method.__name__
    optional = name not in REQUIRED

    @functools.wraps(method)
    async def crossing(self: Bordered, *args: Any, **kwargs: Any) -> Any:
        if optional:
            self.require(name)
        if os.getpid() != self.process:
            self.process = os.getpid()
            self.forked()
        try:
            result: Any = await method(self, *args, **kwargs)
        except StatusError as error:
            result = (error.status, *nothing) if nothing else error.status
        except SimulatorFault as fault:
            self.faults.append(fault)
            raise
        if self.record is not None:
            status = result if isinstance(result, int) else result[0]
            self.record(Call(name, (*args, *kwargs.values()), status))
        return result

    return cast("M", crossing)
