"""The firmware's one task: requests first in first out, each run to its end, by the clock."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Literal, final

from .faults import Fault, Faults, Kind
from .inference import start_job
from .memory import Carveout
from .module import Shelf
from .parameters import SimulatedC7x
from .protocol import HEADER_SIZE, Code, Request, header, read_infer, read_words
from .service import Service
from .work import Answer, Work

__all__ = ["Firmware"]

_INFERENCE = frozenset({Request.INFER, Request.INFER_LARGE})


@final
class Firmware:
    """One boot of the firmware; whoever calls holds what guards it.

    Time is an argument. A request begins when it has arrived and the one before it has ended, however late
    `advance` is called.

    Args:
        params: what it is like.
        carveout: memory that it shares with the host.
        shelf: modules that were read before.
        faults: what goes wrong.
        notes: takes what a host did wrong and no status tells.
        emit: called with each reply: port, time, message.
        trouble: called where a request stops or crashes the core.
        boot: when it booted, and what its uptime was then in ms.

    Attributes:
        inline: whether `advance` computes itself what a job needs; else `claim` gives it to a thread.
        faults: the notes so far, over all boots.
        infer_seconds: that jobs ran; `load_seconds` likewise.
        halted: whether the core stands still, for good.
    """

    def __init__(
        self,
        params: SimulatedC7x,
        carveout: Carveout,
        shelf: Shelf,
        *,
        faults: Faults,
        notes: list[str],
        emit: Callable[[int, float, bytes], None],
        trouble: Callable[[Fault, float], None],
        boot: tuple[float, int],
    ) -> None:
        self.inline = True
        self.faults = notes
        self.infer_seconds = 0.0
        self.load_seconds = 0.0
        self.halted = False
        self._service = Service(params, carveout, shelf, notes)
        self._wire: Literal[2, 3] = params.wire
        self._switches = faults
        self._emit = emit
        self._trouble = trouble
        self._boot = boot
        self._queue: deque[tuple[int, float, bytes]] = deque()
        self._work: Work | None = None
        self._port = 0
        self._begun = 0.0
        self._ends = math.inf
        self._free_at = -math.inf
        self._occupied = 0.0
        self._since: float | None = None
        self._hang_next = False

    @property
    def waiting(self) -> int:
        """Requests that the firmware has not taken yet."""
        return len(self._queue)

    @property
    def running(self) -> bool:
        """Whether a request is being worked on."""
        return self._work is not None

    @property
    def loaded(self) -> list[int]:
        """Handles of the modules that are loaded."""
        return list(self._service.slots.modules)

    @property
    def jobs_completed(self) -> int:
        """Jobs that ended well."""
        return self._service.completed

    @property
    def jobs_failed(self) -> int:
        """Jobs that reached the module and failed."""
        return self._service.failed

    def occupied(self, now: float) -> float:
        """Return the seconds since boot in which something ran or waited."""
        return self._occupied + (0.0 if self._since is None else max(now - self._since, 0.0))

    def uptime_ms(self, now: float) -> int:
        """Return the firmware's clock, which wraps."""
        begun, offset = self._boot
        return (offset + int((now - begun) * 1e3)) % (1 << 32)

    def deliver(self, port: int, message: bytes, now: float) -> None:
        """Queue a request behind all others."""
        self.advance(now)
        if self._since is None:
            self._since = now
        self._queue.append((port, now, message))
        self.advance(now)

    def advance(self, now: float) -> None:
        """Do all that falls due up to `now`."""
        while not self.halted:
            if self._work is not None:
                if not self._ended(self._work, now):
                    return
            elif self._queue:
                self._take(*self._queue.popleft())
            else:
                break
        if not self.halted and self._since is not None:
            self._occupied += max(self._free_at, self._since) - self._since
            self._since = None

    def next_event(self) -> float:
        """Return when something will happen by itself; `math.inf` while a thread computes, too."""
        work = self._work
        if self.halted or work is None:
            return math.inf
        computed = work.ready or (self.inline and not work.claimed)
        return self._ends if computed else math.inf

    def claim(self) -> Callable[[], None] | None:
        """Return what a thread is to compute without holding anything, once; it calls `advance` after."""
        work = self._work
        if work is None or work.claimed or self.halted:
            return None
        work.claimed = True
        return work.run

    def hang(self) -> None:
        """Let the request that runs never end, or else the next one that takes time."""
        self._ends = math.inf
        self._hang_next = self._work is None

    def _ended(self, work: Work, now: float) -> bool:
        if self._ends > now:
            return False
        if not work.ready:
            if work.claimed or not self.inline:
                return False
            work.claimed = True
            work.run()
        self._work = None
        self._free_at = self._ends
        self._emit(self._port, self._ends, work.finish())
        return True

    def _take(self, port: int, arrived: float, message: bytes) -> None:
        at = max(arrived, self._free_at)
        self._free_at = at
        if len(message) < HEADER_SIZE:
            return
        kind, seq = header(message)
        fault = self._switches.request(kind, seq, at)
        if fault is not None and fault.kind is Kind.DROP:
            return
        if fault is not None and fault.kind in {Kind.STOP, Kind.CRASH}:
            self._trouble(fault, at)
            return
        answer = self._answer(kind, seq, message, at)
        if fault is not None and fault.kind is Kind.HANG:
            self._start(port, at, Work(math.inf, bytes))
        elif isinstance(answer, Work):
            self._start(port, at, answer)
            self._count(kind, answer.seconds)
        else:
            self._emit(port, at, answer)

    def _answer(self, kind: int, seq: int, message: bytes, at: float) -> Answer:
        service = self._service
        if kind in _INFERENCE:
            request = read_infer(kind, message, self._wire)
            if request is not None:
                return start_job(service, seq, request)
        else:
            words = read_words(kind, message, self._wire)
            if words is not None:
                return service.answer(kind, seq, words, self.uptime_ms(at))
        return service.replies.status(kind, seq, Code.BAD_REQUEST)

    def _start(self, port: int, at: float, work: Work) -> None:
        self._work = work
        self._port = port
        self._begun = at
        self._ends = math.inf if self._hang_next else at + work.seconds
        self._hang_next = False

    def _count(self, kind: int, seconds: float) -> None:
        if kind in _INFERENCE:
            self.infer_seconds += seconds
        else:
            self.load_seconds += seconds
