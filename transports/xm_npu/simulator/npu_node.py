"""An open descriptor of /dev/npu.0."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final, final

from .job import JobState
from .machine import NpuMachine
from .memory import refuse
from .order import Order
from .parameters import PAGE
from .wire import JOB, OPEN, REGISTERS, START, WORD, NpuCall

__all__ = ["NpuNode"]

_CAPABILITIES: Final = (1, 0, 1, 0)
_MEMSIZE: Final = 0x400000
_VERSION: Final = 0x500
_SIGNAL: Final = "signal"
_CALLS: Final = {call.value: call for call in NpuCall}


@final
class NpuNode:
    """The descriptor; methods raise OSError with the errno of the driver.

    Args:
        machine: what stands behind it.
        owner: whose it is; anybody may use it who has it.
    """

    def __init__(self, machine: NpuMachine, owner: int) -> None:
        self._machine = machine
        self._core = machine.core
        self._owner = owner
        self._memsize = _MEMSIZE
        self._signals = 0
        machine.call(lambda _now: machine.open_file())

    def release(self) -> None:
        """Close it."""
        self._machine.call(lambda _now: self._core.release_file())

    def name(self, request: int) -> str:
        """Return a request's name."""
        return _CALLS[request].name if request in _CALLS else f"{request:#x}"

    async def ioctl(self, request: int, argument: bytearray | int, _process: int) -> int:
        """Make a call."""
        call = _CALLS.get(request)
        if call is None:
            refuse(errno.EINVAL, f"unknown request {request:#x}")
        if call is NpuCall.WAIT_JOB:
            return await self._wait(_bytes(argument, JOB.size))
        if call is NpuCall.DESTROY_QUEUE:
            return await self._destroy()
        return self._machine.call(lambda now: self._simple(call, argument, now))

    def map(self, size: int) -> memoryview:
        """Map the page of registers, as it reads now."""
        if size != PAGE:
            refuse(errno.EINVAL, f"a map of {size} bytes; there is one page")
        page = bytearray(PAGE)
        with self._machine.condition:
            base, end = self._core.window
        for register, value in (("version", _VERSION), ("base", base), ("end", end)):
            WORD.pack_into(page, REGISTERS[register], value)
        return memoryview(page)

    def interrupt(self) -> None:
        """Let a signal end waits."""

        def count(_now: float) -> None:
            self._signals += 1

        self._machine.call(count)

    def _simple(self, call: NpuCall, argument: bytearray | int, now: float) -> int:
        """Make a call that does not wait."""
        core = self._core
        plain: dict[NpuCall, Callable[[], None]] = {
            NpuCall.CREATE_QUEUE: core.create_queue,
            NpuCall.CLOSE: core.close,
            NpuCall.RESET: core.reset,
            NpuCall.CLR_WFI: lambda: None,
        }
        if call in plain:
            plain[call]()
            return 0
        if call is NpuCall.OPEN:
            base, end, *_ = OPEN.unpack(_bytes(argument, OPEN.size))
            core.open(base, end)
            return 0
        if call is NpuCall.SUBMIT_JOB:
            return self._submit(_bytes(argument, START.size), now)
        if call is NpuCall.QUERY_JOB:
            status = _bytes(argument, JOB.size)
            core.check_wait(JOB.unpack(status)[0])
            self._tell(status)
            return 0
        return self._settings(call, argument)

    def _settings(self, call: NpuCall, argument: bytearray | int) -> int:
        if call is NpuCall.SET_PROFILING:
            _bytes(argument, START.size)
            return 0
        word = _bytes(argument, WORD.size)
        value = int.from_bytes(word[: WORD.size], "little")
        if call is NpuCall.GET_CAPABILITY:
            if value >= len(_CAPABILITIES):
                refuse(errno.EINVAL, f"GET_CAPABILITY of {value}")
            return _CAPABILITIES[value]
        if call is NpuCall.SET_MEMSIZE:
            self._memsize = value
        else:
            WORD.pack_into(word, 0, self._memsize)
        return 0

    def _submit(self, argument: bytearray, now: float) -> int:
        address, size, *_, base, end = START.unpack(argument)
        old_base, old_end = self._core.window
        start, stop = base or old_base, end or old_end
        order = Order(start + address, size, start, stop)
        return self._core.submit(order, base, end, now).id

    def _tell(self, status: bytearray) -> JobState:
        """Write a job's state where it was asked for, and collect it if it has ended."""
        number, *_, delay = JOB.unpack(status)
        state, report = self._core.look(number)
        JOB.pack_into(status, 0, number, state, report, 0, delay)
        return state

    async def _wait(self, status: bytearray) -> int:
        number, *_, delay = JOB.unpack(status)
        self._machine.call(lambda _now: self._core.check_wait(number))
        signals = self._signals

        def look(_now: float) -> str | None:
            if self._core.ended(number):
                return self._tell(status).name
            return _SIGNAL if self._signals != signals else None

        found = await self._machine.wait(look, timeout=delay / 1e3 if delay else None)
        if found is None or found == _SIGNAL:
            refuse(errno.EAGAIN, f"WAIT_JOB of {number}: {found or 'time is up'}")
        return 0

    async def _destroy(self) -> int:
        if self._machine.call(lambda _now: self._core.destroy_queue()):
            await self._machine.wait(
                lambda _now: not self._core.runs, timeout=self._machine.params.drain_ms / 1e3
            )
            self._machine.call(lambda _now: self._core.orphan())
        return 0


def _bytes(argument: bytearray | int, size: int) -> bytearray:
    """Return what a pointer points at, as far as the request's size tells."""
    if isinstance(argument, int) or len(argument) < size:
        refuse(errno.EFAULT, "bad pointer")
    return argument
