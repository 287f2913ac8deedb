"""The same DSP over a real descriptor, with the firmware in a thread."""

from __future__ import annotations

import errno
import gc
import os
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from repertory.models.errors import ContractError, DeviceBusy, DeviceLost
from repertory.models.onnx_model import OnnxExecutor
from repertory.transports.rpmsg.simulator.dsp import SimulatedDsp
from repertory.transports.rpmsg.simulator.faults import Fault, Kind, scripted
from repertory.transports.rpmsg.simulator.parameters import SimulatedC7x
from repertory.transports.world import drive

from .host import INFER, PING, STATUS, Host
from .modules import double, many

X = np.array([[1, 2, 3, 4]], np.float32)
MESSAGE = b"\1\0\0\0" + bytes(12)
WIRES = pytest.mark.parametrize("wire", [2, 3])


@asynccontextmanager
async def host(wire: int = 2, **params: Any) -> AsyncGenerator[Host]:
    told: dict[str, Any] = {"latency_ms": 0.0, "load_ms": 0.0, "load_mbs": 1e6} | params
    connected = await Host(SimulatedDsp(SimulatedC7x(wire=2 if wire == 2 else 3, **told)), wire).open()
    try:
        yield connected
    finally:
        connected.close()


def driven(test: Callable[[], Any]) -> None:
    """Run a test as driver code runs: in this thread, without an event loop."""
    drive(test())


@WIRES
def test_jobs(wire: int) -> None:
    async def test() -> None:
        async with host(wire) as h:
            handle = await h.loaded(double())
            for n in range(1, 30):
                assert h.outputs(await h.run(handle, X * n))[0].tolist() == (2 * n * X).tolist()
            assert (await h.run(0, X)).status == -12
            assert (await h.ask(STATUS)).words[2:] == (29, 0)
            x = np.ones((2, 3), np.float32)
            outputs = h.outputs(await h.run(await h.loaded(many(9)), x))
            assert [float(y[0, 0]) for y in outputs] == [1, 2, 3, 4, 5, 6, 7, 8, 9]

    driven(test)


def test_jobs_in_a_row_take_their_time_however_late_the_thread_is() -> None:
    async def test() -> None:
        async with host(latency_ms=0.5, answers="hash") as h:
            handle = await h.loaded(double())
            body = h.job(handle, h.put([X]))
            now = time.monotonic
            start, busy = now(), h.dsp.firmware.occupied(now())
            for _ in range(100):
                h.send(INFER, body)
            for _ in range(100):
                await h.reply()
            assert now() - start >= 0.05
            assert h.dsp.firmware.occupied(now()) - busy == pytest.approx(0.05, abs=1e-6)

    driven(test)


def test_a_crash_leaves_256_messages() -> None:
    async def test() -> None:
        async with host() as h:
            h.dsp.crash()
            count = 0
            while h.endpoint.send(MESSAGE):
                count += 1
            assert count == 256
            assert await h.endpoint.receive(0.01) is None
            h.dsp.restart()
            with pytest.raises(DeviceLost, match="restarted"):
                await h.endpoint.receive(10)
            h.close()
            after = await Host(h.dsp, 2).open()
            assert (await after.ask(PING)).status == 0
            after.close()

    driven(test)


def test_a_stop_loses_what_lay_there() -> None:
    async def test() -> None:
        async with host() as h:
            delays = iter([0.01, 0, 0])
            h.dsp.faults.reader_delay = lambda: next(delays)
            for _ in range(3):
                h.send(PING)
            await h.reply()
            h.dsp.stop()
            for _ in range(2):
                with pytest.raises(DeviceLost, match="stopped"):
                    await h.endpoint.receive(10)
            with pytest.raises(DeviceLost, match="stopped"):
                h.endpoint.send(MESSAGE)

    driven(test)


def test_whoever_waits_is_told_of_a_stop_by_a_fault() -> None:
    async def test() -> None:
        async with host(latency_ms=5) as h:
            handle = await h.loaded(double())
            h.dsp.faults.on_request = scripted({2: Fault(Kind.STOP)})
            h.send(INFER, h.job(handle, h.put([X])))
            h.send(PING)
            with pytest.raises(DeviceLost, match="stopped"):
                await h.reply()

    driven(test)


def test_messages_have_a_size() -> None:
    async def test() -> None:
        async with host() as h:
            for size in (0, 497):
                with pytest.raises(ContractError):
                    h.endpoint.send(bytes(size))
            for _ in range(600):
                assert h.endpoint.send(MESSAGE), "a refused message keeps no buffer"
                assert await h.receive(10) is not None

    driven(test)


def test_faults_of_replies() -> None:
    async def test() -> None:
        async with host() as h:
            h.dsp.faults.on_reply = scripted(
                {0: Fault(Kind.DROP), 1: Fault(Kind.DUPLICATE), 2: Fault(Kind.DELAY, 0.02)}
            )
            seqs = [h.send(PING) for _ in range(4)]
            found = [(await h.reply()).seq for _ in range(4)]
            assert found == [seqs[1], seqs[1], seqs[2], seqs[3]]
            h.dsp.faults.refused_sends = 1
            assert [h.endpoint.send(MESSAGE), h.endpoint.send(MESSAGE)] == [False, True]

    driven(test)


def test_many_replies_wait_until_they_are_read() -> None:
    async def test() -> None:
        async with host() as h:
            delays = chain([0.3], repeat(0))  # none is visible before all are sent
            h.dsp.faults.reader_delay = lambda: next(delays)
            seqs = [h.send(PING) for _ in range(1000)]
            for seq in seqs:
                reply = await h.receive(5)
                assert reply is not None, "as many as the socket held were all"
                assert reply.seq == seq

    driven(test)


def test_connections() -> None:
    async def test() -> None:
        async with host() as h:
            with pytest.raises(DeviceBusy):
                await h.dsp.open_endpoint()
            handle = await h.loaded(double())
            h.endpoint.close()
            h.endpoint.close()
            with pytest.raises(DeviceLost, match="closed"):
                await h.endpoint.receive(1)
            h.endpoint = await h.dsp.open_endpoint()
            assert h.outputs(await h.run(handle, X))[0].tolist() == [[2, 4, 6, 8]]

    driven(test)


def test_requests_outlive_their_client() -> None:
    async def test() -> None:
        async with host(latency_ms=1) as h:
            handle = await h.loaded(double())
            body = h.job(handle, h.put([X]))
            for _ in range(5):
                h.send(INFER, body)
            h.endpoint.close()
            h.endpoint = await h.dsp.open_endpoint()
            assert (await h.ask(STATUS)).words[2:] == (5, 0)
            for _ in range(3):
                h.send(INFER, body)
            h.endpoint.close()
            until = time.monotonic() + 10
            while h.dsp.firmware.jobs_completed < 8:
                assert time.monotonic() < until, "it works on without anybody"

    driven(test)


def test_wake_from_another_thread() -> None:
    async def test() -> None:
        async with host() as h:
            waker = threading.Timer(0.01, h.endpoint.wake)
            waker.start()
            assert await h.endpoint.receive(None) is None
            waker.join()

    driven(test)


def test_threads_end_with_their_connections() -> None:
    async def test() -> None:
        async with host() as h:
            mine = [thread for thread in threading.enumerate() if thread.name == f"simulated {h.dsp.name}"]
            assert len(mine) == 1
            h.close()
            mine[0].join(10)
            assert not mine[0].is_alive()

    driven(test)


def test_a_twin_that_computes_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go = threading.Event(), threading.Event()

    def run(executor: OnnxExecutor, inputs: Any) -> Any:
        begun.set()
        assert go.wait(5), "whoever sends waits for the twin"
        return [inputs[0] * 2]

    monkeypatch.setattr(OnnxExecutor, "run", run)

    async def test() -> None:
        async with host() as h:
            handle = await h.loaded(double())
            h.send(INFER, h.job(handle, h.put([X])))
            assert begun.wait(5)
            h.send(PING)
            assert h.dsp.firmware.waiting == 1
            go.set()
            assert h.outputs(await h.reply())[0].tolist() == [[2, 4, 6, 8]]
            assert (await h.reply()).kind == 0x1001
            assert h.dsp.firmware.faults == []

    driven(test)


@WIRES
def test_without_coherence(wire: int) -> None:
    async def test() -> None:
        async with host(wire, coherent=False) as h:
            body = h.put_module(double())
            h.buffers[0].flush()
            assert (await h.ask(0x10, body)).status == 0
            request = h.job(1, h.put([X]))
            for buffer in h.buffers:
                buffer.flush()
            reply = await h.ask(INFER, request)
            for buffer in h.buffers:
                buffer.invalidate()
            assert h.outputs(reply)[0].tolist() == [[2, 4, 6, 8]]

    driven(test)


def test_without_descriptors_nothing_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        dsp = SimulatedDsp()
        for name in ("socket.socketpair", "os.eventfd"):
            with monkeypatch.context() as patch:
                patch.setattr(name, refused)
                with pytest.raises(DeviceLost) as caught:
                    await dsp.open_endpoint()
            assert isinstance(caught.value.__cause__, OSError)
        (await dsp.open_endpoint()).close()
        monkeypatch.setattr("os.memfd_create", refused)
        for coherent in (True, False):
            with pytest.raises(DeviceLost, match="Too many open files"):
                SimulatedDsp(SimulatedC7x(coherent=coherent))

    driven(test)


def descriptors() -> int:
    for thread in threading.enumerate():
        if thread.name.startswith("simulated"):
            thread.join(20)
    gc.collect()
    return len([*Path("/proc/self/fd").iterdir()])


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize(
    "name",
    ["threading.Thread.start", "threading.Thread", "socket.socketpair", "os.set_blocking", "os.eventfd"],
)
def test_an_open_that_fails_takes_nothing(
    monkeypatch: pytest.MonkeyPatch, name: str, error: type[BaseException]
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise error("no more of it")

    threads = name.startswith("threading") and error is RuntimeError

    async def test() -> None:
        dsp = SimulatedDsp()
        before = descriptors()
        with monkeypatch.context() as patch:
            patch.setattr(name, fail)
            with pytest.raises(DeviceLost if threads else error, match="no more"):
                await dsp.open_endpoint()
        assert descriptors() == before
        (await dsp.open_endpoint()).close()

    driven(test)


def test_a_fork_has_no_use_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        dsp = SimulatedDsp()
        with monkeypatch.context() as patch:
            patch.setattr("os.getpid", lambda: -1)
            with pytest.raises(DeviceLost, match="another process"):
                await dsp.open_endpoint()
            with pytest.raises(DeviceLost, match="another process"):
                dsp.allocate(4096)
        assert dsp.leaks == []
        (await dsp.open_endpoint()).close()

    driven(test)


def refused(*_: Any, **__: Any) -> Any:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
