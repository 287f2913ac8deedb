"""A DSP that says what a test tells it to, on a clock that moves only while somebody waits."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TypeAlias, final

from repertory.models.errors import DeviceBusy
from repertory.transports.rpmsg.dsp import Dsp
from repertory.transports.rpmsg.endpoint import MTU, Endpoint
from repertory.transports.rpmsg.errors import OutOfMemory
from repertory.transports.rpmsg.memory import PAGE, Buffer, aligned
from repertory.transports.rpmsg.wire.messages import Done, Loaded, Pong, Reply, StatusReply
from tests.rpmsg.wire.by_hand import build

__all__ = ["NOTHING", "Answer", "Plain", "Script", "ScriptedDsp", "silent", "usual", "well"]

NOTHING = OutOfMemory(0, 0, 0)

Answer: TypeAlias = "tuple[float, bytes]"
"""Seconds from now, and what arrives then; nothing overtakes."""

Script: TypeAlias = Callable[[int, int, bytes], Sequence[Answer]]
"""From opcode, seq and message to what arrives."""


def usual(opcode: int, seq: int, *, version: int = 0x020000, uptime: int = 1000) -> Reply:
    """Return what a firmware that is well answers to any request but INFER."""
    match opcode:
        case 0x01:
            return Pong(seq, 0, version, uptime)
        case 0x03:
            return StatusReply(seq, 0, version, uptime, 0, 0)
        case 0x10:
            return Loaded(seq, 0, 1, NOTHING)
        case _:
            return Done(seq, 0, opcode)


def silent(_opcode: int, _seq: int, _message: bytes) -> list[Answer]:
    """Answer nothing."""
    return []


def well(version: int = 0x020000) -> Script:
    """Answer everything at once, as a firmware of that version."""

    def script(opcode: int, seq: int, _message: bytes) -> list[Answer]:
        return [(0.0, build(usual(opcode, seq, version=version), version >> 16))]

    return script


@final
class Plain(Buffer):
    """Memory of this process."""

    def __init__(self, dsp: ScriptedDsp, address: int, size: int) -> None:
        self.size = aligned(size, PAGE)
        self.address = address
        self.view = memoryview(bytearray(self.size)) if size < 1 << 20 else memoryview(bytearray(0))
        self.flushes = self.invalidates = 0
        self._dsp = dsp

    def flush(self) -> None:
        self.flushes += 1

    def invalidate(self) -> None:
        self.invalidates += 1

    def close(self) -> None:
        self._dsp.buffers = [held for held in self._dsp.buffers if held is not self]


@final
class ScriptedDsp(Dsp):
    """The lowest interface of one DSP.

    Attributes:
        script: what is answered.
        sent: when, and what, the host has sent.
        offered: when it has tried to, with success or not.
        refused: how many more sends find no free buffer.
        pauses: how long `receive` has waited each time.
        buffers: those that are not closed.
        base: address of the first.
        taken: bytes that somebody else has of its carveout, from the beginning on.
    """

    name = "scripted"
    simulated = True

    def __init__(self, script: Script) -> None:
        self.time = 0.0
        self.script = script
        self.sent: list[tuple[float, bytes]] = []
        self.offered: list[float] = []
        self.refused = 0
        self.pauses: list[float] = []
        self.buffers: list[Plain] = []
        self.base = 0xC0000000
        self.taken = 0
        self.first_fit = True
        self.opened = self.hung_up = self.closed = 0

    def now(self) -> float:
        return self.time

    @property
    def calls(self) -> list[int]:
        """The opcodes of what was sent."""
        return [struct.unpack_from("<I", message)[0] for _, message in self.sent]

    async def open_endpoint(self) -> Endpoint:
        self.opened += 1
        return _ScriptedEndpoint(self)

    def allocate(self, size: int) -> Plain:
        size = aligned(size, PAGE)
        start, limit = self.base + self.taken, self.base + (512 << 20)
        for held in sorted(self.buffers, key=lambda buffer: buffer.address):
            if start + size <= held.address:
                break
            start = held.address + held.size
        if start + size > limit:
            raise DeviceBusy("full", family="c7x")
        if not self.first_fit and size < 512 << 20:
            start += PAGE
        made = Plain(self, start, size)
        self.buffers.append(made)
        return made

    def close(self) -> None:
        self.closed += 1


@final
class _ScriptedEndpoint(Endpoint):
    def __init__(self, dsp: ScriptedDsp) -> None:
        self._dsp = dsp
        self._inbox: list[tuple[float, bytes]] = []
        self._woken = False

    def send(self, message: bytes) -> bool:
        dsp = self._dsp
        assert 0 < len(message) <= MTU
        dsp.offered.append(dsp.time)
        if dsp.refused:
            dsp.refused -= 1
            return False
        dsp.sent.append((dsp.time, message))
        opcode, seq = struct.unpack_from("<II", message)
        for seconds, reply in dsp.script(opcode, seq, message):
            last = self._inbox[-1][0] if self._inbox else 0.0
            self._inbox.append((max(dsp.time + seconds, last), reply))
        return True

    async def receive(self, timeout: float | None) -> bytes | None:
        dsp = self._dsp
        if self._woken:
            self._woken = False
            return None
        arrives = self._inbox[0][0] if self._inbox else None
        assert arrives is not None or timeout is not None, "nothing will ever happen"
        until = None if timeout is None else dsp.time + timeout
        ends = min(moment for moment in (arrives, until) if moment is not None)
        dsp.pauses.append(max(ends - dsp.time, 0.0))
        dsp.time = max(dsp.time, ends)
        if arrives is not None and arrives <= dsp.time:
            return self._inbox.pop(0)[1]
        return None

    def wake(self) -> None:
        self._woken = True

    def close(self) -> None:
        self._dsp.hung_up += 1
