"""Every fault does what it says, and the DSP survives those that it should."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import numpy as np
import pytest

from repertory.models.errors import ContractError, DeviceBusy, DeviceLost
from repertory.transports.rpmsg.simulator.dsp import SimulatedDsp
from repertory.transports.rpmsg.simulator.faults import Fault, Kind, Rule, Seen, scripted, seeded
from repertory.transports.rpmsg.simulator.parameters import SimulatedC7x
from repertory.transports.virtual import VirtualWorld

from .host import INFER, PING, UNLOAD, Host
from .modules import double

pytestmark = pytest.mark.virtual
X = np.array([[1, 2, 3, 4]], np.float32)


@asynccontextmanager
async def host(**params: Any) -> AsyncGenerator[tuple[Host, VirtualWorld]]:
    async with VirtualWorld() as world:
        yield await Host(SimulatedDsp(SimulatedC7x(answers="hash", **params), world), 2).open(), world


async def replies(h: Host, rule: Rule | None, *, count: int = 3) -> list[tuple[int, int]]:
    """Kinds of all replies to some PINGs, and their numbers counted from the first PING."""
    h.dsp.faults.on_reply = rule
    first = h.send(PING)
    for _ in range(count - 1):
        h.send(PING)
    found: list[tuple[int, int]] = []
    while (reply := await h.receive(10)) is not None:
        found.append((reply.kind, reply.seq - first))
    return found


@pytest.mark.parametrize(
    ("kind", "seen"),
    [
        (Kind.DROP, [(0x1001, 0), (0x1001, 2)]),
        (Kind.DUPLICATE, [(0x1001, 0), (0x1001, 1), (0x1001, 1), (0x1001, 2)]),
        (Kind.STALE, [(0x1001, 0), (0x1001, 0), (0x1001, 2)]),
        (Kind.WRONG_TYPE, [(0x1001, 0), (0x1012, 1), (0x1001, 2)]),
        (Kind.MANY_OUTPUTS, [(0x1001, 0), (0x1001, 1), (0x1001, 2)]),
    ],
)
async def test_faults_of_replies(kind: Kind, seen: list[tuple[int, int]]) -> None:
    async with host() as (h, _):
        assert await replies(h, scripted({1: Fault(kind)})) == seen


async def test_a_delayed_reply_holds_up_those_behind_it() -> None:
    async with host() as (h, world):
        h.dsp.faults.on_reply = scripted({1: Fault(Kind.DELAY, 2.5)})
        start = world.now()
        seqs = [h.send(PING) for _ in range(3)]
        came = [((await h.reply()).seq, world.now() - start) for _ in range(3)]
        assert came == [(seqs[0], 0), (seqs[1], 2.5), (seqs[2], 2.5)]


async def test_a_truncated_reply() -> None:
    async with host() as (h, _):
        h.dsp.faults.on_reply = scripted({0: Fault(Kind.TRUNCATE), 1: Fault(Kind.TRUNCATE)})
        h.send(PING)
        h.send(UNLOAD, bytes(4))
        lengths = [len(await h.endpoint.receive(1) or b"") for _ in range(2)]
        assert lengths == [20, 8]


async def test_a_reply_that_claims_too_much() -> None:
    async with host() as (h, _):
        handle = await h.loaded(double())
        h.dsp.faults.on_reply = lambda _: Fault(Kind.MANY_OUTPUTS)
        reply = await h.run(handle, X)
        assert (reply.status, h.inference(reply).count) == (0, 10**9)
        refused = await h.run(0, X)
        assert (refused.status, h.inference(refused).count) == (-12, 0)


async def test_rules_see_what_happens() -> None:
    seen: list[Seen] = []

    def note(it: Seen) -> None:
        seen.append(it)

    async with host(latency_ms=2) as (h, world):
        handle = await h.loaded(double())
        h.dsp.faults.on_request = h.dsp.faults.on_reply = note
        start = world.now()
        await h.run(handle, X)
        ends = pytest.approx(start + 0.002, abs=1e-12)
        assert [(it.number, it.opcode, it.seq) for it in seen] == [(1, 0x21, h.seq), (1, 0x1021, h.seq)]
        assert [it.at for it in seen] == [start, ends]


async def test_seeds_repeat() -> None:
    kinds = [Fault(Kind.DROP), Fault(Kind.DUPLICATE)]
    async with host() as (h, _):
        runs = [await replies(h, seeded(seed, 0.5, kinds), count=40) for seed in (1, 1, 2)]
        assert runs[0] == runs[1] != runs[2]
        assert await replies(h, seeded(3, 0, kinds), count=5) == [(0x1001, n) for n in range(5)]


async def test_a_dropped_request_is_never_answered() -> None:
    async with host() as (h, _):
        h.dsp.faults.on_request = scripted({0: Fault(Kind.DROP)})
        assert [seq for _, seq in await replies(h, None)] == [1, 2]


async def test_sends_find_no_buffer_for_a_while() -> None:
    async with host() as (h, _):
        h.dsp.faults.refused_sends = 2
        message = b"\1\0\0\0" + bytes(12)
        assert [h.endpoint.send(message) for _ in range(4)] == [False, False, True, True]
        assert await h.receive() is not None
        assert await h.receive() is not None
        assert await h.receive(1) is None


async def test_messages_have_a_size() -> None:
    async with host() as (h, _):
        for size in (0, 497):
            with pytest.raises(ContractError, match=f"and not {size}"):
                h.endpoint.send(bytes(size))
        assert h.endpoint.send(bytes(496))


async def test_a_late_reader_keeps_the_order() -> None:
    async with host() as (h, world):
        delays = iter([3.0, 1.0, 0.0])
        h.dsp.faults.reader_delay = lambda: next(delays)
        start = world.now()
        seqs = [h.send(PING) for _ in range(3)]
        assert [((await h.reply()).seq, world.now() - start) for _ in range(3)] == [
            (seq, 3.0) for seq in seqs
        ]


# -- a core that stands still


async def fill(h: Host) -> int:
    """Send until no buffer is free."""
    count = 0
    while h.endpoint.send(b"\1\0\0\0" + bytes(12)):
        count += 1
    return count


@pytest.mark.parametrize("by_rule", [False, True])
async def test_a_crash_is_silent_until_no_buffer_is_free(by_rule: bool) -> None:
    async with host() as (h, _):
        if by_rule:
            h.dsp.faults.on_request = scripted({0: Fault(Kind.CRASH)})
            h.send(PING)
        else:
            h.dsp.crash()
        assert await fill(h) == 256
        assert await h.receive(1000) is None
        h.close()
        after = await Host(h.dsp, 2).open()
        assert not after.endpoint.send(bytes(16)), "for Linux the core still runs"


@pytest.mark.parametrize("by_rule", [False, True])
async def test_what_hangs_lets_nothing_behind_it_begin(by_rule: bool) -> None:
    async with host() as (h, _):
        handle = await h.loaded(double())
        if by_rule:
            h.dsp.faults.on_request = scripted({2: Fault(Kind.HANG)})
            assert await h.ask(PING)
        body = h.job(handle, h.put([X]))
        h.send(INFER, body)
        if not by_rule:
            h.dsp.hang()
        h.send(PING)
        assert await h.receive(1000) is None
        assert (h.dsp.firmware.running, h.dsp.firmware.waiting) == (True, 1)
        assert await fill(h) == 255


async def test_an_idle_core_hangs_with_its_next_job() -> None:
    async with host() as (h, _):
        handle = await h.loaded(double())
        h.dsp.hang()
        assert (await h.ask(PING)).status == 0
        h.send(INFER, h.job(handle, h.put([X])))
        assert await h.receive(1000) is None


@pytest.mark.parametrize("by_rule", [False, True])
async def test_an_orderly_stop_ends_the_connection_and_loses_what_lay_there(by_rule: bool) -> None:
    async with host() as (h, _):
        h.send(PING)
        if by_rule:
            h.dsp.faults.on_request = scripted({1: Fault(Kind.STOP)})
            h.send(PING)
        else:
            h.dsp.stop()
        for _ in range(2):
            with pytest.raises(DeviceLost, match="the core was stopped"):
                await h.endpoint.receive(1)
        with pytest.raises(DeviceLost):
            h.endpoint.send(bytes(16))
        h.endpoint.wake()
        h.close()
        with pytest.raises(DeviceLost, match="offline"):
            await h.dsp.open_endpoint()
        h.dsp.restart()
        assert (await (await Host(h.dsp, 2).open()).ask(PING)).status == 0


async def test_a_waiting_host_is_told_of_a_stop() -> None:
    async with host() as (h, world):
        h.dsp.faults.on_request = scripted({1: Fault(Kind.STOP)})
        handle = await h.loaded(double())
        body = h.job(handle, h.put([X]))
        start = world.now()
        with pytest.raises(DeviceLost):
            await h.ask(INFER, body)
        assert world.now() == start


@pytest.mark.parametrize("kind", [Kind.CRASH, Kind.STOP])
async def test_a_core_boots_again(kind: Kind) -> None:
    async with host(uptime_ms=5000) as (h, world):
        handle = await h.loaded(double())
        h.dsp.faults.on_request = scripted({1: Fault(kind, 3.0)})
        start = world.now()
        h.send(PING)
        with pytest.raises(DeviceLost, match="stopped" if kind is Kind.STOP else "restarted"):
            await h.endpoint.receive(10)
        assert world.now() - start == pytest.approx(0 if kind is Kind.STOP else 3, abs=1e-9)
        if kind is Kind.STOP:
            h.dsp.stop(0.5)
            h.dsp.restart()
        old = h.buffers[0]
        h.endpoint.close()
        assert h.dsp.boots == 2
        assert h.dsp.firmware.loaded == []
        new = Host(h.dsp, 2)
        new.endpoint, new.inputs, new.buffers = await h.dsp.open_endpoint(), h.inputs, [old]
        assert (await new.ask(PING)).words[1] == 0
        assert (await new.run(handle, X)).status == -10
        await new.load(double())
        assert any("no attached buffer" in note for note in h.dsp.firmware.faults)


# -- connections


async def test_a_second_connection_is_refused() -> None:
    async with host() as (h, _):
        with pytest.raises(DeviceBusy):
            await h.dsp.open_endpoint()
        h.close()
        (await h.dsp.open_endpoint()).close()


async def test_what_is_loaded_outlives_its_client() -> None:
    async with host() as (h, _):
        handle = await h.loaded(double())
        h.close()
        after = await Host(h.dsp, 2).open()
        after.put_module(double())
        assert (await after.run(handle, X)).status == 0


async def test_requests_outlive_their_client_and_replies_do_not() -> None:
    async with host() as (h, world):
        handle = await h.loaded(double())
        body = h.job(handle, h.put([X]))
        for _ in range(2):
            h.send(INFER, body)
        h.endpoint.close()
        h.endpoint.close()
        with pytest.raises(DeviceLost, match="closed"):
            h.endpoint.send(bytes(16))
        with pytest.raises(DeviceLost, match="closed"):
            await h.endpoint.receive(1)
        start = world.now()
        h.endpoint = await h.dsp.open_endpoint()
        assert (await h.ask(PING)).kind == 0x1001
        assert world.now() - start == pytest.approx(0.002, abs=1e-12)
        assert h.dsp.firmware.jobs_completed == 2


async def test_wake() -> None:
    async with host() as (h, world):
        start = world.now()
        h.endpoint.wake()
        assert await h.endpoint.receive(None) is None
        h.endpoint.wake()
        h.send(PING)
        assert await h.endpoint.receive(1) is not None, "what has arrived comes first"
        assert await h.endpoint.receive(1) is None
        assert world.now() == start
        assert await h.endpoint.receive(1) is None
        assert world.now() - start == 1
        h.endpoint.close()
        h.endpoint.wake()


async def test_a_wake_reaches_whoever_waits() -> None:
    async with host() as (h, world):
        start = world.now()
        async with anyio.create_task_group() as tasks:

            async def soon() -> None:
                await anyio.sleep(5)
                h.endpoint.wake()

            tasks.start_soon(soon)
            assert await h.endpoint.receive(None) is None
        assert world.now() - start == pytest.approx(5)
