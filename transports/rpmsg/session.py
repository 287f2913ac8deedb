"""A connected DSP with at most one module on it.

The firmware has four slots for modules, and only one is usable: the entry point is a single global that
the last load takes over, each file is loaded from the same memory in which the weights of the one before
still lie, and every unload resets the heap of all. So a swap is unload and load. A client that dies leaves
its module behind, and the slot with it, until the DSP restarts; so what an earlier connection left is
looked for and unloaded. Handles count upwards and tell where: the first that a process gets lies right
behind that of the process before it.
"""

from __future__ import annotations

import itertools
import logging
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Self, final

from repertory.models.errors import DeviceLost

from .client import Client
from .dsp import Dsp
from .errors import DspRefusal, Status
from .memory import Buffer
from .wire import requests
from .wire.messages import Done, Loaded, Opcode, Pong
from .workspace import SINGLE, FixedWorkspace, Need, PurposeWorkspace, Workspace

__all__ = ["LOAD_BOUND", "OPEN_BOUND", "SLOTS", "SWEEP", "UNLOAD_BOUND", "Ledger", "Session"]

OPEN_BOUND: Final = 15.0
"""Seconds that a DSP may take to answer first; the job of a client before may still run."""

LOAD_BOUND: Final = 120.0
"""Seconds that a load may take; 35 were quoted for a file of 319 MB."""

UNLOAD_BOUND: Final = 2.0
"""Seconds that an unload may take."""

SLOTS: Final = 4
"""Modules that the firmware can hold."""

SWEEP: Final = 256
"""Handles that are tried: from 1 on when slots seem to be taken by clients that have gone, and backwards from
the first that this process gets."""

_SLACK_MS = 5000
_DRIFT = 0.02  # of two clocks
_WRAP = 1 << 32

_log = logging.getLogger("repertory.c7x")


@final
@dataclass(slots=True)
class Ledger:
    """What is known of a DSP over connections.

    Attributes:
        seq: numbers of requests; from anywhere on, for a process that ended may have left answers under way.
        handle: of the module that we loaded and have not unloaded; 0 for none.
        uncertain: whether a load was asked for whose answer is missing.
        highest: the largest handle that was seen.
        uptime: the firmware's in ms, and when it was read; None before the first time.
        held: memory that the DSP may still read or write, for a job of a connection before. It goes back to
            the heap, which others use too, only when the DSP is known to be idle, or with this ledger.
    """

    seq: itertools.count[int] = field(default_factory=lambda: itertools.count(secrets.randbits(32)))
    handle: int = 0
    uncertain: bool = False
    highest: int = 0
    uptime: tuple[int, float] | None = None
    held: list[Buffer] = field(default_factory=list[Buffer])

    def __del__(self) -> None:
        self.release()

    def release(self) -> None:
        """Give the held memory back."""
        while self.held:
            self.held.pop().close()

    def restarted(self, pong: Pong, now: float) -> bool:
        """Note the uptime; whether it is less than it must be, so that every handle is void."""
        before, self.uptime = self.uptime, (pong.uptime_ms, now)
        if before is None:
            return False
        elapsed = (now - before[1]) * 1000
        behind = (before[0] + elapsed - pong.uptime_ms) % _WRAP
        return _SLACK_MS + _DRIFT * elapsed < behind < _WRAP - _SLACK_MS - _DRIFT * elapsed

    def forget(self) -> None:
        """The DSP has restarted."""
        self.handle, self.highest, self.uncertain = 0, 0, False


@final
class Session:
    """Driver code, used by one driver loop; `open` makes one.

    Attributes:
        client: the connection.
        workspace: the memory.
        firmware: what the DSP said of itself at the open.
        handle: of the loaded module; 0 for none.
    """

    def __init__(self, client: Client, workspace: Workspace, firmware: Pong, ledger: Ledger) -> None:
        self.client = client
        self.workspace = workspace
        self.firmware = firmware
        self._ledger = ledger

    @classmethod
    async def open(
        cls,
        dsp: Dsp,
        ledger: Ledger,
        *,
        now: Callable[[], float],
        bound: float = OPEN_BOUND,
        pipelined: bool = True,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Self:
        """Connect, take the memory, and free what an earlier connection left.

        Args:
            dsp: the lowest interface; closed with the session.
            ledger: what is known of this DSP from before.
            now: the world's clock.
            bound: seconds that the DSP may take to answer first.
            pipelined: whether jobs are staged while others run; else there is one slot and one area.
            stopped: as for `Client`.

        Raises:
            DeviceError: as `Client.open` and `Workspace`; nothing is left open then.
        """
        client = Client(dsp, now=now, seq=ledger.seq, stopped=stopped)
        try:
            firmware = await client.open(bound=bound)
            ledger.release()  # it has answered, so whatever ran before has ended
            session = cls(client, _workspace(dsp, client, pipelined=pipelined), firmware, ledger)
        except BaseException:
            client.close()
            raise
        try:
            await session._settle_in(firmware, now())
        except BaseException:
            session.close()
            raise
        return session

    @property
    def handle(self) -> int:
        """Of the loaded module; 0 for none."""
        return self._ledger.handle

    async def load(self, data: bytes, need: Need, *, bound: float = LOAD_BOUND) -> Loaded:
        """Load a module in the place of the one that is loaded.

        Raises:
            ArtifactError: it does not fit into the memory.
            DspRefusal: the firmware does not load it; nothing is loaded then.
            DeviceError: as `Client.ask`.
        """
        await self.unload()
        self.workspace.arrange(need)
        known = self._ledger.highest > 0
        try:
            loaded = await self._load(data, bound)
        except DspRefusal as refusal:
            if refusal.status not in {Status.LOAD, Status.NO_MEMORY} or not await self._sweep(self._all()):
                raise
            return await self._load(data, bound)
        if known or not await self._sweep(range(loaded.handle - 1, max(loaded.handle - SWEEP, 1) - 1, -1)):
            return loaded
        await self.unload()  # its memory was reset with that of what was swept
        return await self._load(data, bound)

    async def unload(self) -> None:
        """Unload what is loaded, if anything is. A firmware that does not know it has restarted.

        Raises:
            DeviceError: as `Client.ask`, but for refusals.
        """
        if self._ledger.handle:
            await self._unload(self._ledger.handle)
            self._ledger.handle = 0

    async def check(self, now: float, *, bound: float) -> Pong:
        """Ask an idle DSP how it is.

        Raises:
            DeviceLost: it has restarted, and what was loaded is gone.
            DeviceError: as `Client.ping`.
        """
        pong = await self.client.ping(bound=bound)
        if self._ledger.restarted(pong, now):
            self._ledger.forget()
            raise DeviceLost("the DSP has restarted: its uptime went backwards", family="c7x", call="PING")
        return pong

    def close(self) -> None:
        """Give everything back but a loaded module, and memory of a job that may still run.

        Any number of times.
        """
        if self.client.at_work:
            self._ledger.held += self.workspace.surrender()
        self.workspace.close()
        self.client.close()

    async def _settle_in(self, firmware: Pong, now: float) -> None:
        """Free what an earlier connection of ours left, and name the printf buffer."""
        if self._ledger.restarted(firmware, now):
            self._ledger.forget()
        printf = self.workspace.printf
        if printf is not None:
            name = partial(requests.set_printf_buf, address=printf.address, size=printf.size)
            await self.client.ask(Opcode.SET_PRINTF_BUF, name, Done, bound=UNLOAD_BOUND)
        await self.unload()
        if self._ledger.uncertain:
            await self._sweep(self._all())

    async def _load(self, data: bytes, bound: float) -> Loaded:
        ledger, module = self._ledger, self.workspace.module
        module.view[: len(data)] = data
        module.buffer.flush()
        ledger.uncertain = True
        try:
            loaded = await self.client.ask(
                Opcode.DYN_LOAD,
                partial(requests.dyn_load, elf_size=len(data)),
                Loaded,
                bound=bound,
                attempts=1,  # each would take a slot
            )
        except DspRefusal:
            ledger.uncertain = False
            raise
        ledger.uncertain = False
        ledger.handle = loaded.handle
        ledger.highest = max(ledger.highest, loaded.handle)
        return loaded

    async def _unload(self, handle: int) -> bool:
        """Unload a module; False where the firmware does not know it."""
        forget = partial(requests.dyn_unload, handle=handle)
        try:
            await self.client.ask(Opcode.DYN_UNLOAD, forget, Done, bound=UNLOAD_BOUND)
        except DspRefusal as refusal:
            if refusal.status != Status.HANDLE:
                _log.warning("%s", refusal)
            return False
        return True

    def _all(self) -> Iterable[int]:
        return range(1, max(self._ledger.highest + SLOTS, SWEEP) + 1)

    async def _sweep(self, handles: Iterable[int]) -> int:
        """Unload what clients that have gone left behind; return how many modules that were."""
        freed = 0
        for handle in handles:
            freed += await self._unload(handle)
            if freed == SLOTS:
                break
        self._ledger.uncertain = False
        if freed:
            _log.warning("unloaded %d modules that somebody had left on the DSP", freed)
        return freed


def _workspace(dsp: Dsp, client: Client, *, pipelined: bool) -> Workspace:
    kind = PurposeWorkspace if client.wire.names_result else FixedWorkspace
    return kind(dsp, kind.depths if pipelined else SINGLE)
