"""What earlier clients left on the DSP, what a restart voids, and what a load that fails leaves behind."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import pytest

from repertory.models.errors import DeviceBusy, DeviceHung, DeviceLost
from repertory.transports.rpmsg.errors import DspRefusal
from repertory.transports.rpmsg.session import SWEEP, Ledger, Session
from repertory.transports.rpmsg.simulator.dsp import SimulatedDsp
from repertory.transports.rpmsg.simulator.faults import Fault, Kind, Seen
from repertory.transports.rpmsg.simulator.parameters import SimulatedC7x
from repertory.transports.rpmsg.wire import requests
from repertory.transports.rpmsg.wire.messages import Done, Opcode, Pong
from repertory.transports.rpmsg.workspace import Need
from repertory.transports.virtual import VirtualWorld
from tests.rpmsg.dsps import module
from tests.rpmsg.owner import restart_unseen

pytestmark = pytest.mark.virtual
WIRES = pytest.mark.parametrize("wire", [2, 3])
NEED = Need(len(module()), 64, 64)
LOADING = 0x10
UNLOADING = 0x12


@asynccontextmanager
async def dsp(wire: Any, **options: Any) -> AsyncGenerator[tuple[SimulatedDsp, VirtualWorld]]:
    """Give a DSP; at the end nobody may hold memory of it, nor have done what no status tells."""
    async with VirtualWorld() as world:
        made = SimulatedDsp(SimulatedC7x(wire=wire, load_ms=1.0, **options), world)
        yield made, world
        assert made.leaks == []
        assert [note for note in made.firmware.faults if "refused" not in note] == []


async def opened(dsp: SimulatedDsp, ledger: Ledger | None = None) -> Session:
    return await Session.open(dsp, ledger or Ledger(), now=anyio.current_time)


async def loaded(session: Session, data: bytes | None = None) -> int:
    data = module() if data is None else data
    return (await session.load(data, Need(max(len(data), 1), 64, 64))).handle


async def die(dsp: SimulatedDsp, *, times: int = 1, last: int = 1) -> None:
    """Be processes that are killed with a module loaded, each after a number of loads."""
    for _ in range(times):
        session = await opened(dsp, Ledger(highest=1 << 20))
        for _ in range(last):
            await loaded(session)
        session.close()


@WIRES
async def test_four_dead_clients(anyio_backend: object, wire: int) -> None:
    async with dsp(wire) as (board, _):
        await die(board, times=4)
        assert board.firmware.loaded == [1, 2, 3, 4]
        asked: list[int] = []
        board.faults.on_request = lambda seen: asked.append(seen.opcode)
        session = await opened(board)
        handle = await loaded(session)
        assert board.firmware.loaded == [handle]
        assert asked.count(UNLOADING) == 4, "there are no more than four"
        await session.unload()
        assert board.firmware.loaded == []
        session.close()


@WIRES
async def test_a_heap_that_dead_clients_have_filled(anyio_backend: object, wire: int) -> None:
    async with dsp(wire, heap_mb=10, workspace_mb=4) as (board, _):
        await die(board, times=2)
        session = await opened(board)
        handle = await loaded(session)
        assert board.firmware.loaded == [handle]
        session.close()


@WIRES
@pytest.mark.parametrize("loads", [1, 400])
async def test_a_dead_client_is_found_by_the_first_handle(
    anyio_backend: object, wire: int, loads: int
) -> None:
    """However many it had loaded before: it leaves no slot taken, and so no four of them can."""
    async with dsp(wire) as (board, _):
        await die(board, last=loads)
        assert board.firmware.loaded == [loads]
        session = await opened(board)
        handle = await loaded(session)
        assert session.handle == handle
        assert board.firmware.loaded == [handle]
        again = await loaded(session)
        assert again == handle + 1, "only the first load of a process looks"
        session.close()


@WIRES
async def test_the_look_backwards_ends(anyio_backend: object, wire: int) -> None:
    async with dsp(wire) as (board, _):
        session = await opened(board, Ledger(highest=1 << 20))
        for _ in range(SWEEP + 50):
            await loaded(session)
        await session.unload()
        session.close()
        asked: list[int] = []
        board.faults.on_request = lambda seen: asked.append(seen.opcode)
        session = await opened(board)
        await loaded(session)
        assert asked.count(UNLOADING) <= SWEEP
        assert asked.count(LOADING) == 1
        asked.clear()
        await loaded(session)
        assert asked.count(UNLOADING) == 1, "that of its own"
        session.close()


@WIRES
async def test_a_bad_file_is_refused_and_leaves_the_dsp_as_it_was(anyio_backend: object, wire: int) -> None:
    async with dsp(wire) as (board, _):
        session = await opened(board)
        with pytest.raises(DspRefusal, match=r"refused DYN_LOAD: LOAD \(-9\)"):
            await loaded(session, b"no ELF at all")
        assert (session.handle, board.firmware.loaded) == (0, [])
        await loaded(session)
        with pytest.raises(DspRefusal):
            await loaded(session, b"\x7fELF and then nothing of the kind, not at all, for many bytes" * 4)
        assert (session.handle, board.firmware.loaded) == (0, [])
        handle = await loaded(session)
        assert board.firmware.loaded == [handle]
        session.close()


@WIRES
async def test_a_lack_of_memory_that_no_sweep_mends(anyio_backend: object, wire: int) -> None:
    async with dsp(wire, heap_mb=10, workspace_mb=40) as (board, _):
        session = await opened(board)
        with pytest.raises(DspRefusal, match="41943040 bytes wanted, 10485760 of 10485760 free") as caught:
            await loaded(session)
        assert caught.value.oom is not None
        assert board.firmware.loaded == []
        session.close()


@WIRES
async def test_what_an_earlier_connection_of_ours_left_is_unloaded(anyio_backend: object, wire: int) -> None:
    async with dsp(wire) as (board, _):
        ledger = Ledger()
        session = await opened(board, ledger)
        await loaded(session)
        handle = await loaded(session)
        session.close()
        assert board.firmware.loaded == [handle]
        asked: list[int] = []
        board.faults.on_request = lambda seen: asked.append(seen.opcode)
        session = await opened(board, ledger)
        assert board.firmware.loaded == []
        assert session.handle == 0
        assert asked.count(UNLOADING) == 1, "nothing is in doubt"
        session.close()


@WIRES
@pytest.mark.parametrize("lost", ["reply", "request"])
async def test_a_load_whose_answer_was_lost_leaks_no_slot(
    anyio_backend: object, wire: int, lost: str
) -> None:
    async with dsp(wire) as (board, _):
        ledger = Ledger()
        session = await opened(board, ledger)

        def drop(seen: Seen) -> Fault | None:
            return Fault(Kind.DROP) if seen.opcode & 0xFFF == LOADING else None

        if lost == "reply":
            board.faults.on_reply = drop
        else:
            board.faults.on_request = drop
        with pytest.raises(DeviceLost, match="the reply to DYN_LOAD was lost"):
            await loaded(session)
        assert len(board.firmware.loaded) == (lost == "reply"), "it is not asked for twice"
        doubts = [ledger.uncertain]
        session.close()
        board.faults.on_reply = board.faults.on_request = None
        session = await opened(board, ledger)
        assert board.firmware.loaded == []
        doubts.append(ledger.uncertain)
        assert doubts == [True, False]
        await loaded(session)
        session.close()


@WIRES
async def test_an_unload_that_a_hang_prevents_is_made_up_for(anyio_backend: object, wire: int) -> None:
    async with dsp(wire) as (board, _):
        ledger = Ledger()
        session = await opened(board, ledger)
        handle = await loaded(session)
        board.faults.on_request = lambda _: Fault(Kind.DROP)
        with pytest.raises(DeviceHung):
            await session.unload()
        session.close()
        assert board.leaks == []
        board.faults.on_request = lambda seen: Fault(Kind.DROP) if seen.opcode == UNLOADING else None
        with pytest.raises(DeviceLost, match="DYN_UNLOAD was lost"):
            await opened(board, ledger)
        assert board.leaks == []
        board.faults.on_request = None
        assert board.firmware.loaded == [handle]
        session = await opened(board, ledger)
        assert board.firmware.loaded == []
        session.close()


@WIRES
async def test_an_unload_of_what_is_not_there_is_no_error(anyio_backend: object, wire: int) -> None:
    async with dsp(wire) as (board, _):
        session = await opened(board)
        handle = await loaded(session)
        forget = partial(requests.dyn_unload, handle=handle)
        await session.client.ask(Opcode.DYN_UNLOAD, forget, Done, bound=1)
        await session.unload()
        await session.unload()
        assert session.handle == 0
        session.close()


@WIRES
async def test_a_restart_while_nobody_looked(anyio_backend: object, wire: int) -> None:
    """Handles begin anew: the old one must not be unloaded, for it may be somebody's."""
    async with dsp(wire, uptime_ms=60_000) as (board, _):
        ledger = Ledger()
        session = await opened(board, ledger)
        await loaded(session)
        session.close()
        board.restart()
        asked: list[int] = []
        board.faults.on_request = lambda seen: asked.append(seen.opcode)
        session = await opened(board, ledger)
        assert UNLOADING not in asked
        assert (ledger.handle, ledger.highest) == (0, 0)
        session.close()


@WIRES
async def test_a_restart_under_a_connection_is_noticed_by_its_uptime(
    anyio_backend: object, wire: int
) -> None:
    async with dsp(wire, uptime_ms=60_000) as (board, world):
        ledger = Ledger()
        session = await opened(board, ledger)
        await loaded(session)
        assert (await session.check(world.now(), bound=1)).uptime_ms >= 60_000
        restart_unseen(board)
        with pytest.raises(DeviceLost, match="its uptime went backwards"):
            await session.check(world.now(), bound=1)
        assert (ledger.handle, ledger.highest, ledger.uncertain) == (0, 0, False)
        session.close()


@WIRES
async def test_a_second_client_gets_nothing_and_disturbs_nobody(anyio_backend: object, wire: int) -> None:
    async with dsp(wire) as (board, _):
        session = await opened(board)
        handle = await loaded(session)
        held = len(board.leaks)
        with pytest.raises(DeviceBusy):
            await opened(board)
        assert len(board.leaks) == held
        await session.check(0, bound=1)
        assert board.firmware.loaded == [handle]
        session.close()


@WIRES
async def test_memory_that_somebody_else_has(anyio_backend: object, wire: int) -> None:
    async with dsp(wire) as (board, _):
        taken = board.allocate(490 << 20)
        with pytest.raises(DeviceBusy, match="the carveout has no"):
            await loaded(await opened_or_closed(board))
        taken.close()
        session = await opened(board)
        await loaded(session)
        session.close()


async def opened_or_closed(board: SimulatedDsp) -> Session:
    """Open; version 2 takes its memory with the first load, and is closed here after a refusal of it."""
    session = await opened(board)
    try:
        await loaded(session)
    except DeviceBusy:
        session.close()
        raise
    return session


@pytest.mark.parametrize(("version", "known"), [(0x010000, False), (0x040000, False), (0x02FFFF, True)])
async def test_a_firmware_that_nobody_here_speaks_to(
    anyio_backend: object, version: int, known: bool
) -> None:
    async with dsp(2, version=version) as (board, _):
        if known:
            session = await opened(board)
            session.close()
        else:
            with pytest.raises(DeviceLost, match=f"speaks version {version >> 16}.0.0"):
                await opened(board)
        (await board.open_endpoint()).close()


WRAP = 1 << 32


@pytest.mark.parametrize(
    ("before", "elapsed", "after", "restarted"),
    [
        (60_000, 10, 70_000, False),
        (60_000, 10, 64_500, True),
        (60_000, 10, 65_200, False),
        (60_000, 10, 0, True),
        (WRAP - 2000, 10, 8000, False),
        (WRAP - 60_000, 10, WRAP - 50_000, False),
        (WRAP - 60_000, 10, 8000, True),
        (WRAP - 60_000, 100, 500, True),
        (3 * WRAP // 4, 10, 0, True),
        (60_000, 100_000, 60_000 + int(100_000e3 * 1.01), False),
        (60_000, 100_000, 60_000 + int(100_000e3 * 0.99), False),
        (60_000, 100_000, 60_000 + int(100_000e3 * 0.5), True),
        (60_000, 100_000, 90_000_000, True),
    ],
)
async def test_what_an_uptime_proves(
    anyio_backend: object, before: int, elapsed: float, after: int, restarted: bool
) -> None:
    """The counter wraps after 49 days, and two clocks run a little apart; neither is a restart."""
    ledger = Ledger()
    assert not ledger.restarted(Pong(1, 0, 0x020000, before), 1000.0)
    assert ledger.restarted(Pong(2, 0, 0x020000, after % WRAP), 1000.0 + elapsed) is restarted
    assert ledger.uptime == (after % WRAP, 1000.0 + elapsed)
