"""One connection to the firmware: requests and their replies, by sequence number.

The firmware is one task that answers first come, first served, and the endpoint keeps the order. So a
reply proves that whatever was asked before has been done too: an earlier request that has no reply by then
will never get one. That is how a lost reply is told from a slow job, and what a PING behind a request is
good for.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar, final

from repertory.models.errors import DeviceHung, DeviceLost

from .dsp import Dsp
from .endpoint import Endpoint
from .errors import DspRefusal, Status
from .wire import requests
from .wire.choose import wire_for
from .wire.messages import Done, Inferred, Loaded, Malformed, Opcode, Pong, Reply, StatusReply, WeightsLoaded
from .wire.v2 import V2
from .wire.wire import Wire

__all__ = ["ATTEMPTS", "BACK_OFF", "PING_BOUND", "Client", "Request", "Strays", "refusal"]

PING_BOUND: Final = 1.0
"""Seconds after which an unanswered PING to an idle DSP is repeated."""

BACK_OFF: Final = (0.001, 0.020)
"""First and longest pause in seconds before a message is offered again; each is twice the one before."""

ATTEMPTS: Final = 3
"""How often a control request is sent while its replies are lost."""

_WITHDRAWN = 1.0  # seconds
_REMEMBERED = 64
"""Requests that are remembered after their end, to tell what a stray is."""

R = TypeVar("R", bound=Reply)


@final
@dataclass(slots=True)
class Strays:
    """Messages that answered nothing, and were dropped.

    Attributes:
        late: the request had been given up.
        duplicate: it had been answered.
        wrong_type: it had asked for something else.
        malformed: no reply at all, or a short one.
        unknown: nobody had asked.
    """

    late: int = 0
    duplicate: int = 0
    wrong_type: int = 0
    malformed: int = 0
    unknown: int = 0


@final
@dataclass(slots=True, eq=False)
class Request:
    """A message that was sent.

    Attributes:
        seq: its number in the message.
        order: its place among all that were sent, from 1 on.
        call: what it asks for.
        kind: the type of its answer.
        reply: the answer; None while it is outstanding, and for good where it was lost.
    """

    seq: int
    order: int
    call: Opcode
    kind: type[Reply]
    reply: Reply | None = None


_KINDS: Final[dict[Opcode, type[Reply]]] = {
    Opcode.PING: Pong,
    Opcode.GET_STATUS: StatusReply,
    Opcode.DYN_LOAD: Loaded,
    Opcode.DYN_UNLOAD: Done,
    Opcode.MODEL_LOAD: WeightsLoaded,
    Opcode.MODEL_UNLOAD: Done,
    Opcode.INFER: Inferred,
    Opcode.INFER_LARGE: Inferred,
    Opcode.SET_PRINTF_BUF: Done,
}


_WORK: Final = frozenset({Opcode.DYN_LOAD, Opcode.MODEL_LOAD, Opcode.INFER, Opcode.INFER_LARGE})
"""What the DSP reads or writes shared memory for."""


@final
@dataclass(slots=True)
class _BackOff:
    """When a message that found no free buffer is offered again.

    A message may be withdrawn instead, which nobody tells: what is offered long after its time is another.
    """

    now: Callable[[], float]
    since: float | None = None
    until: float = 0.0
    _pause: float = field(default=BACK_OFF[0])

    def failed(self) -> None:
        now = self.now()
        if self.since is None or now > self.until + _WITHDRAWN:
            self.since, self._pause = now, BACK_OFF[0]
        self.until = now + self._pause
        self._pause = min(2 * self._pause, BACK_OFF[1])

    def clear(self) -> None:
        self.since, self.until, self._pause = None, 0.0, BACK_OFF[0]


@final
class Client:
    """Sends requests and matches replies; driver code, used by one driver loop.

    Args:
        dsp: the lowest interface.
        now: the world's clock.
        seq: numbers of requests. They go on over connections: a new endpoint may get the address of an old
            one, and with it replies that were meant for that.
        stopped: whether what waits here shall end, for nobody wants it any more; asked at each wake-up, and
            once a second while a PING is out.

    Attributes:
        wire: the version that the firmware speaks; of the first PING until it is known.
        strays: what was dropped.
    """

    def __init__(
        self,
        dsp: Dsp,
        *,
        now: Callable[[], float],
        seq: itertools.count[int],
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self.wire: Wire = V2()
        self.strays = Strays()
        self._dsp = dsp
        self._now = now
        self._seq = seq
        self._stopped = stopped
        self._endpoint: Endpoint | None = None
        self._outstanding: dict[int, Request] = {}
        self._given_up: deque[int] = deque(maxlen=_REMEMBERED)
        self._answered: deque[int] = deque(maxlen=_REMEMBERED)
        self._back_off = _BackOff(now)
        self._heard = now()
        self._sent = self._last_work = self._proven = 0

    async def open(self, *, bound: float) -> Pong:
        """Connect, ask for the firmware's version, and speak it from now on.

        Jobs of a client before this one may still run, and the answer waits behind them. So once this
        returns, the DSP is idle.

        Raises:
            DeviceLost: there is no such firmware, or its major version is unknown.
            DeviceBusy: somebody else has it.
            DeviceHung: it has not answered within `bound` seconds.
        """
        self._endpoint = await self._dsp.open_endpoint()
        pong = await self.ping(bound=bound)
        self.wire = wire_for(pong.version)
        return pong

    @property
    def outstanding(self) -> int:
        """Requests without a reply."""
        return len(self._outstanding)

    @property
    def at_work(self) -> bool:
        """Whether the DSP may still read or write memory, for all that was heard from it."""
        return self._last_work > self._proven

    @property
    def heard(self) -> float:
        """When the DSP last answered; on the world's clock."""
        return self._heard

    @property
    def next_offer(self) -> float:
        """When a message that found no free buffer may be offered again; 0 for at once."""
        return self._back_off.until

    @property
    def blocked_since(self) -> float | None:
        """Since when no buffer has been free, or None."""
        return self._back_off.since

    def post(self, call: Opcode, encode: Callable[[int], bytes]) -> Request | None:
        """Send a request without waiting; None where no buffer is free, with nothing sent.

        Raises:
            DeviceLost: the endpoint is gone.
        """
        seq = next(self._seq) & 0xFFFF_FFFF
        if not self._wired().send(encode(seq)):
            self._back_off.failed()
            return None
        self._back_off.clear()
        self._sent += 1
        if call in _WORK:
            self._last_work = self._sent
        request = self._outstanding[seq] = Request(seq, self._sent, call, _KINDS[call])
        return request

    async def receive(self, timeout: float | None) -> list[Request]:
        """Wait for a message; return what it settles: requests whose replies were lost, then its own.

        Empty after `timeout` seconds, after a `wake`, and for a message that answers nothing.

        Raises:
            DeviceLost: the endpoint is gone.
        """
        message = await self._wired().receive(timeout)
        request = None if message is None else self._match(message)
        if message is not None:
            self._back_off.clear()  # whoever answers has also taken something
        if request is None:
            return []
        self._heard = self._now()
        self._proven = request.order
        settled = list(itertools.takewhile(lambda other: other is not request, self._outstanding.values()))
        settled.append(request)
        for other in settled:
            del self._outstanding[other.seq]
            self._answered.append(other.seq)
        return settled

    def wake(self) -> None:
        """Let `receive` return; from any thread."""
        if self._endpoint is not None:
            self._endpoint.wake()

    async def ask(
        self,
        call: Opcode,
        encode: Callable[[int], bytes],
        kind: type[R],
        *,
        bound: float,
        attempts: int = ATTEMPTS,
    ) -> R:
        """Send a request to an idle DSP and wait for its answer, with a PING behind it.

        Args:
            call: what is asked.
            encode: makes the message.
            kind: of the answer.
            bound: seconds that all of it may take.
            attempts: how often it is sent while replies are lost; 1 for what must not be done twice.

        Raises:
            DspRefusal: it says no.
            DeviceLost: the replies were lost, or the endpoint.
            DeviceHung: nothing has come within `bound` seconds.
        """
        deadline = self._now() + bound
        for _ in range(attempts):
            request = await self._posted(call, encode, deadline)
            await self._fence(request, deadline)
            if request.reply is not None:
                return _accepted(request, kind)
        raise DeviceLost(f"the reply to {call.name} was lost", family="c7x", call=call.name)

    async def ping(self, *, bound: float) -> Pong:
        """Send PING until one is answered.

        Raises:
            DeviceHung: none was within `bound` seconds.
            DeviceLost: the endpoint is gone.
        """
        deadline = self._now() + bound
        while True:
            request = await self._posted(Opcode.PING, requests.ping, deadline)
            if not await self._settled(request, min(deadline, self._now() + PING_BOUND)):
                self._give_up(request, deadline)
            if isinstance(request.reply, Pong):
                return request.reply

    async def status(self, *, bound: float) -> StatusReply:
        """Ask for the firmware's counters.

        Raises:
            DeviceError: as `ask`.
        """
        return await self.ask(Opcode.GET_STATUS, requests.get_status, StatusReply, bound=bound)

    def close(self) -> None:
        """Give the endpoint and the DSP back. Any number of times."""
        if self._endpoint is not None:
            self._endpoint.close()
        self._dsp.close()

    def _wired(self) -> Endpoint:
        if self._endpoint is None:
            raise DeviceLost("the DSP is not connected", family="c7x")
        return self._endpoint

    async def _posted(self, call: Opcode, encode: Callable[[int], bytes], deadline: float) -> Request:
        """Send, offering the message again and again until `deadline`."""
        while (request := self.post(call, encode)) is None:
            self._check_wanted(call)
            if self._now() >= deadline:
                raise DeviceHung(f"{call.name}: the DSP takes no message", family="c7x", call=call.name)
            await self.receive(max(self._back_off.until - self._now(), 0.0))
        return request

    async def _fence(self, request: Request, deadline: float) -> None:
        """Wait until a request is settled, with PINGs behind it: each waits twice as long as the one before.

        Raises:
            DeviceHung: it was not by `deadline`.
        """
        pause = PING_BOUND
        while True:
            await self._posted(Opcode.PING, requests.ping, deadline)
            if await self._settled(request, min(deadline, self._now() + pause)):
                return
            if self._now() >= deadline:
                self._give_up(request, deadline)
            pause *= 2

    async def _settled(self, request: Request, until: float) -> bool:
        """Wait until a request is answered, or a later one is; False where it was not by `until`."""
        while request.seq in self._outstanding:
            self._check_wanted(request.call)
            rest = until - self._now()
            if rest <= 0:
                return False
            await self.receive(rest)
        return True

    def _check_wanted(self, call: Opcode) -> None:
        if self._stopped():
            raise DeviceLost(f"{call.name}: the device is closed", family="c7x", call=call.name)

    def _give_up(self, request: Request, deadline: float) -> None:
        """Expect no answer any more.

        Raises:
            DeviceHung: the deadline has come.
        """
        if self._outstanding.pop(request.seq, None) is not None:
            self._given_up.append(request.seq)
        if self._now() >= deadline:
            call = request.call.name
            raise DeviceHung(f"{call} was not answered in time", family="c7x", call=call)

    def _match(self, message: bytes) -> Request | None:
        """Return the request that this message answers, with its reply; None for a stray."""
        try:
            reply = self.wire.parse(message)
        except Malformed:
            self.strays.malformed += 1
            return None
        request = self._outstanding.get(reply.seq)
        if request is None:
            self._count(reply.seq)
            return None
        if not _answers(reply, request):
            self.strays.wrong_type += 1
            return None
        request.reply = reply
        return request

    def _count(self, seq: int) -> None:
        if seq in self._given_up:
            self._given_up.remove(seq)
            self.strays.late += 1
        elif seq in self._answered:
            self.strays.duplicate += 1
        else:
            self.strays.unknown += 1


def _answers(reply: Reply, request: Request) -> bool:
    """Whether a reply is of the kind that the request asked for, or refuses it."""
    if not isinstance(reply, Done):
        return isinstance(reply, request.kind)
    same = reply.opcode == request.call
    return same or (request.call is Opcode.INFER_LARGE and reply.opcode == Opcode.INFER)


def _accepted(request: Request, kind: type[R]) -> R:
    """Return a reply that is no refusal.

    Raises:
        DspRefusal: it is one.
    """
    reply = request.reply
    assert reply is not None, "an answered request"
    if reply.status != Status.OK or not isinstance(reply, kind):
        raise refusal(request)
    return reply


def refusal(request: Request) -> DspRefusal:
    """Return the error that a reply with another status than OK is."""
    reply, call = request.reply, request.call.name
    assert reply is not None, "an answered request"
    lacking = reply.oom if isinstance(reply, Loaded | WeightsLoaded | Inferred) else None
    return DspRefusal(
        f"the DSP refused {call}",
        call=call,
        status=reply.status,
        oom=lacking if reply.status == Status.NO_MEMORY else None,
        required=reply.required if isinstance(reply, Inferred) else None,
    )
