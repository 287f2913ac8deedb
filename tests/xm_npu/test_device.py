"""A GK7206 NPU behind the device contract: opening, health, capabilities, memory, and closing."""

from __future__ import annotations

from functools import partial

import anyio
import pytest
from anyio.lowlevel import checkpoint

from repertory.models.errors import (
    ArtifactError,
    ContractError,
    DeviceError,
    DeviceHung,
    DeviceLost,
    NoRoom,
)
from repertory.models.program import Artifact, Program
from repertory.transports.frame import Fate, Frame
from repertory.transports.real import RealWorld
from repertory.transports.virtual import VirtualWorld
from repertory.transports.xm_npu.simulator.board import Board
from repertory.transports.xm_npu.simulator.faults import Fault, Kind, scripted

from .boards import WAYS, BoardSource, Via, affine
from .owner import CLOSE, Owner, bench

virtual = pytest.mark.virtual


def _hanging(board: Board) -> None:
    board.switches.on_job = scripted({0: Fault(Kind.HANG)})


async def _opened(source: BoardSource, world: VirtualWorld) -> Owner:
    owner = Owner(source, world)
    await owner.open()
    return owner


# -- what it says of itself


@virtual
@WAYS
async def test_capabilities(anyio_backend: object, via: Via) -> None:
    async with bench(via, mmz_mb=8, residents=3, run_bound=2.0, load_bound=5.0) as owner:
        found = owner.device.capabilities
        assert (found.family, found.simulated, found.residents, found.window) == ("xm-npu", True, 3, 6)
        assert (found.memory, found.bind_needs_idle, found.probe_needs_idle) == (8 << 20, False, False)
        assert found.stall >= 2 + 5, "a hung job and a load come first"


@virtual
@WAYS
async def test_health_has_units_and_counts(anyio_backend: object, via: Via) -> None:
    async with bench(via) as owner:
        before = await owner.device.probe()
        program = await owner.load(2)
        owner.start(program, 1)
        await anyio.sleep(0.01)
        during = await owner.device.probe()
        assert before.well
        assert during.well
        names = ("graphs_count", "jobs_count", "mmz_held_bytes")
        assert [before.readings[name] for name in names] == [0, 0, 0]
        assert [during.readings[name] for name in names[:2]] == [1, 1]
        assert 0 < during.readings[names[2]] <= owner.source.board.mmz.used


@virtual
@WAYS
async def test_a_probe_beside_a_load_tells_what_was_said_last(anyio_backend: object, via: Via) -> None:
    async with bench(via, load_ms=200.0) as owner:
        before = await owner.device.probe()
        if via == "ioctl":  # it loads in no time
            assert before.well
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(owner.load, 2)
            await anyio.sleep(0.1)
            began = anyio.current_time()
            assert await owner.device.probe() is before
            assert anyio.current_time() == began


# -- opening


@virtual
@pytest.mark.parametrize(
    ("via", "missing", "text"),
    [
        ("cl", "present", r"stage 1, xmedia_sys_init.*no NPU at /dev/npu\.0.*xm7206v11a"),
        ("cl", "privileged", r"xmedia_mmz_alloc.*CAP_SYS_RAWIO"),
        ("ioctl", "present", r"/dev/npu\.0.*not there.*xm7206v11a.*no npu\.\*"),
        ("ioctl", "privileged", r"/dev/mmz_userdev.*EPERM.*CAP_SYS_RAWIO"),
    ],
)
async def test_what_is_missing_is_named_and_nothing_stays_open(
    anyio_backend: object, via: Via, missing: str, text: str
) -> None:
    async with VirtualWorld() as world:
        source = BoardSource(via, without={missing})
        owner = Owner(source, world)
        with pytest.raises(DeviceLost, match=text):
            await owner.open()
        await owner.device.close(bound=CLOSE)
        source.check_clean()


# -- memory


@virtual
@WAYS
async def test_no_room_says_what_is_wanted_and_evicting_makes_it(anyio_backend: object, via: Via) -> None:
    """Beside others: the owner evicts more. What was to be evicted is gone in any case."""
    async with bench(via, mmz_mb=0.0625) as owner:
        programs = list[Program]()
        with pytest.raises(NoRoom, match=r"\d+ bytes") as caught:  # noqa: PT012  (it ends the loop)
            while True:
                programs.append(await owner.load(2 + len(programs)))
        assert caught.value.wanted is not None
        assert owner.faults == []
        last = await owner.load(37, evict=programs[:1])
        assert await owner.right(owner.start(last, 3), 37, 3)
        with pytest.raises(ContractError, match="not resident"):
            owner.start(programs[0], 1)
        assert await owner.right(owner.start(programs[1], 3), 3, 3)


@virtual
@WAYS
async def test_what_is_resident_is_not_loaded_again(anyio_backend: object, via: Via) -> None:
    async with bench(via) as owner:
        program, other = await owner.load(2), await owner.load(3)
        held = owner.source.board.mmz.used
        frame = owner.start(program, 1)
        await owner.device.bind(program)
        assert owner.source.board.mmz.used == held
        assert await owner.right(frame, 2, 1)
        await owner.device.bind(None, evict=[program, other])
        for factor in (3, 2):  # they come back
            assert await owner.right(owner.start(await owner.load(factor), 4), factor, 4)
        assert owner.source.board.mmz.used == held


@virtual
async def test_a_program_of_another_family_is_refused(anyio_backend: object) -> None:
    async with bench("cl") as owner:
        foreign = owner.device.prepare(Artifact("a.xmm", affine(2)))
        object.__setattr__(foreign, "image", object())
        with pytest.raises(ArtifactError, match="another family"):
            await owner.device.bind(foreign)
        program = await owner.load(3)
        assert await owner.right(owner.start(program, 1), 3, 1)


# -- closing


@virtual
@WAYS
async def test_closing_lands_what_is_in_flight(anyio_backend: object, via: Via) -> None:
    async with bench(via) as owner:
        programs = [await owner.load(factor) for factor in (2, 3)]
        frames = [owner.start(program, 1) for program in programs for _ in range(2)]
        cancelled = frames.pop()
        owner.cancel(cancelled)
        began = anyio.current_time()
        await owner.device.close(bound=CLOSE)
        assert anyio.current_time() - began == pytest.approx(0.15, abs=0.01)
        assert owner.fates(*frames, cancelled) == [Fate.DONE] * 3 + [Fate.UNDONE]
        owner.source.check_clean()
        for call in (owner.device.probe, partial(owner.device.bind, None)):
            with pytest.raises(DeviceError):
                await call()
        assert owner.faults == []


@virtual
@WAYS
@pytest.mark.parametrize("bound", [5.0, 0.4])
async def test_closing_a_hung_npu_keeps_its_bound(anyio_backend: object, via: Via, bound: float) -> None:
    """The nodes stop it with a RESET; by the library its memory is left to the end of the process."""
    async with VirtualWorld() as world:
        source = BoardSource(via, _hanging, run_bound=60.0)
        owner = await _opened(source, world)
        programs = [await owner.load(factor) for factor in (2, 3)]
        frames = [owner.start(program, 1) for program in programs for _ in range(2)]
        await anyio.sleep(0.1)
        began = anyio.current_time()
        await owner.device.close(bound=bound)
        assert anyio.current_time() - began <= bound + 1e-6
        assert owner.fates(*frames) == [Fate.UNDONE] * 4
        assert owner.faults == []
        await anyio.sleep(5)  # what was left behind ends by itself
        assert bool(source.board.leaks()) is (via == "cl")
        source.board.end_processes()
        source.board.mmz.leaked.clear()
        source.check_clean()
        second = await _opened(source, world)
        program = await second.load(5)
        assert await second.right(second.start(program, 2), 5, 2), "the next incarnation serves"
        await second.device.close(bound=CLOSE)
        source.check_clean()


@virtual
async def test_closing_while_it_loads(anyio_backend: object) -> None:
    """The load ends first, and frames behind it are served."""
    async with VirtualWorld() as world:
        source = BoardSource("cl", load_ms=500.0, latency_ms=50.0)
        owner = await _opened(source, world)
        program = await owner.load(2)
        frames: list[Frame] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(owner.load, 3)
            await anyio.sleep(0.1)
            frames.append(owner.start(program, 1))
            began = anyio.current_time()
            await owner.device.close(bound=CLOSE)
            assert anyio.current_time() - began == pytest.approx(0.45, abs=0.01)
        assert owner.fates(*frames) == [Fate.DONE]
        assert owner.faults == []
        source.check_clean()


@virtual
@WAYS
async def test_calls_during_a_close_are_refused_at_once(anyio_backend: object, via: Via) -> None:
    async with bench(via) as owner:
        program = await owner.load(2)
        frames = [owner.start(program, number) for number in (1, 2)]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(owner.device.close, bound=CLOSE))
            await anyio.sleep(0.01)
            began = anyio.current_time()
            with pytest.raises(DeviceLost, match="closed"):
                await owner.load(3)
            assert anyio.current_time() == began
        assert owner.fates(*frames) == [Fate.DONE] * 2


@virtual
@WAYS
async def test_closing_waits_for_nobody_who_has_given_up(anyio_backend: object, via: Via) -> None:
    async with bench(via) as owner:
        frame = owner.start(await owner.load(2), 1)
        owner.cancel(frame)
        began = anyio.current_time()
        await owner.device.close(bound=CLOSE)
        assert anyio.current_time() == began
        assert owner.fates(frame) == [Fate.UNDONE]


@virtual
async def test_calls_that_come_at_once_are_all_answered(anyio_backend: object) -> None:
    """One after the other; and those that a close overtakes are refused."""
    async with bench("cl", load_ms=500.0) as owner:
        async with anyio.create_task_group() as tasks:
            for factor in (2, 3):
                tasks.start_soon(owner.load, factor)
        assert anyio.current_time() == pytest.approx(1.0, abs=0.01)
        ends = list[DeviceError]()

        async def load(factor: int) -> None:
            try:
                await owner.load(factor)
            except DeviceError as error:
                ends.append(error)

        async with anyio.create_task_group() as tasks:
            for factor in (5, 7, 11):
                tasks.start_soon(load, factor)
            await anyio.sleep(0.1)
            await owner.device.close(bound=0.2)
        assert [type(error) for error in ends] == [DeviceLost] * 3
        assert anyio.current_time() == pytest.approx(1.5, abs=0.01)
        await anyio.sleep(2)


@virtual
@WAYS
async def test_closing_while_it_is_opened(anyio_backend: object, via: Via) -> None:
    """At any step of it: the opening ends, and nothing stays open."""
    for steps in range(8):
        async with VirtualWorld() as world:
            source = BoardSource(via)
            owner = Owner(source, world)
            ends = list[type[BaseException] | None]()

            async def opening(owner: Owner = owner, ends: list[type[BaseException] | None] = ends) -> None:
                try:
                    await owner.open()
                except DeviceError as error:
                    ends.append(type(error))
                else:
                    ends.append(None)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(opening)
                for _ in range(steps):
                    await checkpoint()
                await owner.device.close(bound=CLOSE)
            assert ends in ([None], [DeviceLost])
            if ends == [DeviceLost]:
                with pytest.raises(DeviceError):
                    await owner.device.probe()
            await owner.device.close(bound=CLOSE)
            assert (owner.landed, owner.faults) == ([], [])
            source.check_clean()


@virtual
@WAYS
async def test_closing_what_was_never_opened_or_is_closed(anyio_backend: object, via: Via) -> None:
    async with VirtualWorld() as world:
        source = BoardSource(via)
        owner = Owner(source, world)
        for _ in range(2):
            await owner.device.close(bound=CLOSE)
        with pytest.raises(DeviceError):
            await owner.load(2)
        await owner.open()
        for _ in range(2):
            await owner.device.close(bound=CLOSE)
        assert (owner.landed, owner.faults) == ([], [])
        source.check_clean()


@virtual
async def test_a_load_that_outlasts_its_bound_loses_the_device(anyio_backend: object) -> None:
    async with bench("cl", load_ms=10_000.0, load_bound=1.0) as owner:
        with pytest.raises(DeviceHung, match="load has not returned"):
            await owner.load(2)
        assert anyio.current_time() < 3
        assert [type(fault) for fault in owner.faults] == [DeviceHung]
        with pytest.raises(DeviceHung):
            await owner.device.probe()
        await anyio.sleep(20)  # then the call comes back after all


@virtual
@WAYS
async def test_an_npu_that_vanishes_is_lost_once_with_all_its_frames(anyio_backend: object, via: Via) -> None:
    """The library does not tell: its job just never ends."""
    async with VirtualWorld() as world:
        source = BoardSource(via, latency_ms=50.0)
        owner = await _opened(source, world)
        programs = [await owner.load(factor) for factor in (2, 3)]
        source.board.switches.on_job = scripted({0: Fault(Kind.GONE)})
        frames = [owner.start(program, 1) for program in programs for _ in range(2)]
        ends = [(await owner.end(frame)).fate for frame in frames]
        assert ends == [Fate.FAILED if via == "cl" else Fate.UNDONE, *[Fate.UNDONE] * 3]
        await anyio.sleep(0.01)
        assert [type(fault) for fault in owner.faults] == [DeviceHung if via == "cl" else DeviceLost]
        with pytest.raises(DeviceError):
            owner.start(programs[0], 2)
        await owner.device.close(bound=CLOSE)
        assert len(owner.landed) == len(frames)


# -- in real time


@WAYS
async def test_a_life_in_threads(anyio_backend: object, via: Via) -> None:
    """Times are told as they pass, and a close tells what has ended as done."""
    async with RealWorld() as world:
        owner = Owner(BoardSource(via, latency_ms=5.0), world)
        await owner.open()
        program = await owner.load(2)
        end = await owner.end(owner.start(program, 1))
        assert end.busy >= 0.005
        assert 0 < end.transfer < 1
        frames = [owner.start(program, number) for number in (2, 3)]
        await owner.device.close(bound=CLOSE)
        assert owner.fates(*frames) == [Fate.DONE] * 2
        owner.source.check_clean()
