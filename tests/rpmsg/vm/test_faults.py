"""Threads, Ctrl-C, time-outs and restarts: nothing is ever answered with another run's result."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

import numpy as np
import pytest

from repertory.models.errors import DeviceLost
from repertory.transports.rpmsg import session
from repertory.transports.rpmsg.errors import DspRefusal
from repertory.transports.rpmsg.simulator.dsp import SimulatedDsp
from repertory.transports.rpmsg.simulator.faults import Fault, Kind, Seen
from repertory.transports.rpmsg.simulator.memory import SimulatedBuffer
from repertory.transports.rpmsg.vm import connection
from repertory.transports.rpmsg.vm.errors import (
    ConnectionFailed,
    ConnectionLost,
    DspRestarted,
    InputBusy,
    RunFailed,
    RunTimedOut,
    StaleInput,
    StaleView,
    VmClosed,
    VmError,
)

from .conftest import Make, few
from .ctrl_c import INFER, LOAD, CtrlC
from .support import affine, floats, is_loaded, slow

INFER_REPLIES = {0x1021}
INFERS = {0x21, 0x23}


def only(opcodes: set[int], fault: Fault, *, times: int = 1) -> Callable[[Seen], Fault | None]:
    """Let a fault befall the first messages of some kinds."""
    left = [fault] * times
    return lambda seen: left.pop() if left and seen.opcode in opcodes else None


@contextmanager
def running(dsp: SimulatedDsp, call: Callable[[], Any]) -> Generator[list[Any]]:
    """Make a call in a thread, and enter once the DSP is at it; its result or error is in the list."""
    done: list[Any] = []
    begun = threading.Event()

    def note(seen: Seen) -> Fault | None:
        if seen.opcode in INFERS:
            begun.set()
        return None

    def work() -> None:
        try:
            done.append(call())
        except Exception as error:  # noqa: BLE001
            done.append(error)

    dsp.faults.on_request = note
    dsp.faults.on_reply = only(INFER_REPLIES, Fault(Kind.DELAY, 0.5))
    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(20)
    yield done
    thread.join(20)
    assert not thread.is_alive()
    dsp.faults.on_request = None


# -- threads -------------------------------------------------------------------------------------------


@few
def test_calls_of_many_threads_get_their_own_answers(make: Make) -> None:
    vm = make(affine())
    wrong: list[int] = []

    def work(seed: int) -> None:
        for each in range(seed, seed + 20):
            if not np.array_equal(vm["main"](floats(each)).numpy(), 2 * floats(each)):
                wrong.append(each)  # noqa: PERF401

    threads = [threading.Thread(target=work, args=(100 * place,)) for place in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert wrong == []
    assert vm.copied_inputs == 120


@few
def test_a_staged_input_is_locked_while_it_is_read(make: Make, dsp: SimulatedDsp) -> None:
    vm = make(affine())
    staged = vm.create_input((1, 4), "float32").copyfrom(floats(1))
    other = vm.create_input((1, 4), "float32")
    with running(dsp, lambda: vm["main"](staged).numpy()) as done:
        with pytest.raises(InputBusy):
            staged.copyfrom(floats(2))
        with pytest.raises(InputBusy):
            staged[:] = 0 * floats(2)
        assert np.array_equal(staged.numpy(), floats(1))
        other.copyfrom(floats(3))
    assert np.array_equal(done[0], 2 * floats(1))
    assert np.array_equal(vm["main"](other).numpy(), 2 * floats(3))
    staged.copyfrom(floats(2))
    assert np.array_equal(vm["main"](staged).numpy(), 2 * floats(2))


@pytest.mark.parametrize("dsp", ["v2 in one buffer, incoherent"], indirect=True)
def test_in_one_buffer_all_staged_inputs_are_locked(make: Make, dsp: SimulatedDsp) -> None:
    vm = make(affine())
    staged = vm.create_input((1, 4), "float32").copyfrom(floats(1))
    other = vm.create_input((1, 4), "float32").copyfrom(floats(3))
    with running(dsp, lambda: vm["main"](staged).numpy()), pytest.raises(InputBusy):
        other.copyfrom(floats(4))
    assert np.array_equal(vm["main"](other).numpy(), 2 * floats(3))


@pytest.mark.parametrize("sync", ["flush", "invalidate"])
def test_what_is_accepted_during_a_sync_is_not_lost(
    make: Make, sync: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    vm = make(affine())
    staged, other = (vm.create_input((1, 4)).copyfrom(floats(seed)) for seed in (1, 2))
    wanted, seeds, before = floats(2), count(10), getattr(SimulatedBuffer, sync)

    def write() -> None:
        nonlocal wanted
        with suppress(InputBusy):
            other.copyfrom(value := floats(next(seeds)))
            wanted = value

    def slow_sync(buffer: SimulatedBuffer) -> None:
        thread = threading.Thread(target=write)
        thread.start()
        thread.join(20)
        before(buffer)

    with monkeypatch.context() as patch:
        patch.setattr(SimulatedBuffer, sync, slow_sync)
        assert np.array_equal(vm["main"](staged).numpy(), 2 * floats(1))
    assert next(seeds) > 10, "it was tried"
    assert np.array_equal(other.numpy(), wanted)
    assert np.array_equal(vm["main"](other).numpy(), 2 * wanted)


@few
def test_close_waits_for_the_run_of_another_thread(make: Make, dsp: SimulatedDsp) -> None:
    vm = make(affine())
    vm["main"](floats(1))
    with running(dsp, lambda: vm["main"](floats(2)).numpy()) as done:
        vm.close()
        assert np.array_equal(done[0], 2 * floats(2))
    with pytest.raises(VmClosed):
        vm["main"](floats())


# -- Ctrl-C --------------------------------------------------------------------------------------------


@pytest.fixture
def ctrl_c(dsp: SimulatedDsp) -> CtrlC:
    return CtrlC(dsp)


@contextmanager
def interrupted(ctrl_c: CtrlC, at: bytes = INFER) -> Generator[None]:
    """Send this process a Ctrl-C while it waits for the answer to a request."""
    ctrl_c.at = at
    with pytest.raises(KeyboardInterrupt):
        yield
    assert ctrl_c.at == b""


@few
def test_ctrl_c_and_the_next_call_has_its_own_answer(make: Make, dsp: SimulatedDsp, ctrl_c: CtrlC) -> None:
    vm = make(slow(0.15), address=lambda: ctrl_c)
    with interrupted(ctrl_c):
        vm["main"](floats(1))
    for seed in (2, 3):
        assert np.array_equal(vm["main"](floats(seed)).numpy(), 2 * floats(seed))
    assert dsp.firmware.loaded == [1], "it was not loaded again"
    assert dsp.firmware.jobs_completed == 3


@few
def test_ctrl_c_and_a_staged_input_is_written_after_the_run(
    make: Make, dsp: SimulatedDsp, ctrl_c: CtrlC
) -> None:
    vm = make(slow(0.15), address=lambda: ctrl_c)
    staged = vm.create_input((1, 4), "float32").copyfrom(floats(1))
    with interrupted(ctrl_c):
        vm.run_nocopy(staged)
    staged.copyfrom(floats(2))
    assert dsp.firmware.jobs_completed == 1, "it waited for the end"
    assert np.array_equal(vm["main"](staged).numpy(), 2 * floats(2))


@few
def test_ctrl_c_ends_the_views_of_before(make: Make, dsp: SimulatedDsp, ctrl_c: CtrlC) -> None:
    vm = make(slow(0.1), address=lambda: ctrl_c)
    view = vm.run_nocopy(floats(1))
    with interrupted(ctrl_c):
        vm["main"](floats(2))
    with pytest.raises(StaleView):
        view.sum()


@few
def test_ctrl_c_and_close(
    make: Make, dsp: SimulatedDsp, ctrl_c: CtrlC, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "UNLOAD_BOUND", 0.3)
    vm = make(slow(0.6), address=lambda: ctrl_c)
    with interrupted(ctrl_c):
        vm["main"](floats(1))
    vm.close()
    assert dsp.firmware.jobs_completed == 1, "the memory was in use until then"
    assert dsp.firmware.loaded == []


@few
def test_ctrl_c_while_it_loads(make: Make, dsp: SimulatedDsp, ctrl_c: CtrlC) -> None:
    vm = make(affine(), address=lambda: ctrl_c)
    with interrupted(ctrl_c, LOAD):
        vm["main"](floats(1))
    assert not is_loaded(vm)
    assert np.array_equal(vm["main"](floats(2)).numpy(), 2 * floats(2))
    assert dsp.firmware.loaded == [2], "what it had loaded before was found"


# -- time-outs -----------------------------------------------------------------------------------------


@few
def test_a_run_that_takes_too_long(make: Make, dsp: SimulatedDsp) -> None:
    vm = make(slow(2.0), timeout=0.05)
    staged = vm.create_input((1, 4), "float32").copyfrom(floats(1))
    with pytest.raises(RunTimedOut, match=r"0\.05 s") as caught:
        vm["main"](staged)
    assert dsp.firmware.jobs_completed == 0, "it was not waited for"
    assert isinstance(caught.value, RuntimeError)
    staged.copyfrom(floats(2))
    assert dsp.firmware.jobs_completed == 1
    assert np.array_equal(staged.numpy(), floats(2))


@few
def test_after_a_time_out_the_late_answer_is_nobodys(make: Make, dsp: SimulatedDsp) -> None:
    vm = make(affine(), timeout=0.3)
    vm["main"](floats(9))
    dsp.faults.on_reply = only(INFER_REPLIES, Fault(Kind.DELAY, 0.6))
    with pytest.raises(RunTimedOut):
        vm["main"](floats(1))
    assert np.array_equal(vm["main"](floats(2)).numpy(), 2 * floats(2))
    assert dsp.firmware.loaded == [1]


@few
def test_a_dsp_that_hangs_and_boots_again(
    make: Make, dsp: SimulatedDsp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "OPEN_BOUND", 0.5)
    monkeypatch.setattr(connection.Connection.settle, "__kwdefaults__", {"bound": 0.2})
    vm = make(affine(), timeout=0.3)
    vm["main"](floats(9))
    dsp.hang()
    with pytest.raises(RunTimedOut):
        vm["main"](floats(1))
    with pytest.raises(ConnectionFailed):
        vm["main"](floats(1))
    assert not is_loaded(vm)
    dsp.restart()
    assert np.array_equal(vm["main"](floats(2)).numpy(), 2 * floats(2))


# -- lost answers and restarts -------------------------------------------------------------------------


@few
def test_a_lost_answer_is_noticed(make: Make, dsp: SimulatedDsp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "RUN_BOUND", 0.05)
    vm = make(affine())
    vm["main"](floats(9))
    dsp.faults.on_reply = only(INFER_REPLIES, Fault(Kind.DROP))
    with pytest.raises(RunFailed, match="lost"):
        vm["main"](floats(1))
    assert np.array_equal(vm["main"](floats(2)).numpy(), 2 * floats(2))


@few
def test_a_slow_run_is_no_lost_answer(make: Make, dsp: SimulatedDsp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "RUN_BOUND", 0.02)
    vm = make(slow(0.1))
    for seed in range(3):
        assert np.array_equal(vm["main"](floats(seed)).numpy(), 2 * floats(seed))


@few
@pytest.mark.parametrize("kind", [Kind.MANY_OUTPUTS, Kind.DUPLICATE])
def test_an_absurd_answer(make: Make, dsp: SimulatedDsp, kind: Kind) -> None:
    vm = make(affine())
    vm["main"](floats(9))
    dsp.faults.on_reply = only(INFER_REPLIES, Fault(kind))
    if kind is Kind.DUPLICATE:
        assert np.array_equal(vm["main"](floats(1)).numpy(), 2 * floats(1))
    else:
        with pytest.raises(RunFailed, match="outputs"):
            vm["main"](floats(1))
    assert np.array_equal(vm["main"](floats(2)).numpy(), 2 * floats(2))


@few
def test_no_free_buffer_for_a_while(make: Make, dsp: SimulatedDsp) -> None:
    vm = make(affine())
    vm["main"](floats(9))
    dsp.faults.refused_sends = 3
    assert np.array_equal(vm["main"](floats(1)).numpy(), 2 * floats(1))


def test_a_restart_between_runs(make: Make, dsp: SimulatedDsp) -> None:
    vm = make(affine())
    view, staged = vm.run_nocopy(floats(1)), vm.create_input((1, 4))
    dsp.restart()
    assert is_loaded(vm), "nobody was told"
    with pytest.raises(ConnectionLost, match="restarted") as caught:
        vm["main"](floats(2))
    assert isinstance(caught.value, RuntimeError)
    assert not is_loaded(vm)
    with pytest.raises(StaleView):
        view.sum()
    with pytest.raises(StaleInput, match="restarted"):
        vm["main"](staged)
    assert np.array_equal(vm["main"](floats(3)).numpy(), 2 * floats(3))
    assert is_loaded(vm)
    assert dsp.firmware.loaded == [1]


@few
def test_a_firmware_that_has_forgotten_the_module(make: Make, dsp: SimulatedDsp) -> None:
    vm = make(affine())
    vm["main"](floats(1))
    dsp.firmware._service.slots.unload(1)  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(DspRestarted) as caught:
        vm["main"](floats(1))
    assert isinstance(caught.value.__cause__, DspRefusal)
    assert caught.value.status == -10
    assert not is_loaded(vm)
    assert np.array_equal(vm["main"](floats(3)).numpy(), 2 * floats(3))


@few
def test_a_core_that_stops_during_a_run(make: Make, dsp: SimulatedDsp) -> None:
    vm = make(affine())
    vm["main"](floats(9))
    dsp.faults.on_request = only(INFERS, Fault(Kind.STOP, 0.05))
    with pytest.raises(ConnectionLost, match="stopped") as caught:
        vm["main"](floats(1))
    assert "restarted" not in str(caught.value)
    dsp.restart()
    assert np.array_equal(vm["main"](floats(2)).numpy(), 2 * floats(2))


@few
def test_a_core_that_is_stopped(make: Make, dsp: SimulatedDsp) -> None:
    vm = make(affine())
    dsp.stop()
    with pytest.raises(ConnectionFailed, match="offline"):
        vm["main"](floats(1))
    dsp.restart()
    assert np.array_equal(vm["main"](floats(2)).numpy(), 2 * floats(2))


@few
@pytest.mark.parametrize("sync", ["flush", "invalidate"])
def test_a_sync_that_fails_is_no_restart(make: Make, sync: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: SimulatedBuffer) -> None:
        raise DeviceLost("sync of 4096 bytes: Input/output error", family="c7x", call="DMA_BUF_IOCTL_SYNC")

    vm = make(affine())
    staged = vm.create_input((1, 4))
    with monkeypatch.context() as patch:
        patch.setattr(SimulatedBuffer, sync, fail)
        with pytest.raises(ConnectionLost, match="Input/output error") as caught:
            vm["main"](floats(1))
    assert "restarted" not in str(caught.value)
    with pytest.raises(StaleInput, match="Input/output error"):
        staged.numpy()
    assert np.array_equal(vm["main"](floats(2)).numpy(), 2 * floats(2))


# -- odd callers ---------------------------------------------------------------------------------------


class Caller:
    """Calls the machine while the machine asks it for an array."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self._call().numpy()


@few
def test_an_input_that_runs_the_machine(make: Make) -> None:
    vm = make(affine())
    assert np.allclose(vm["main"](Caller(lambda: vm["main"](floats(1)))).numpy(), 4 * floats(1))


@few
def test_a_signal_handler_cannot_run_the_machine(make: Make, ctrl_c: CtrlC) -> None:
    vm = make(affine(), address=lambda: ctrl_c)
    staged = vm.create_input((1, 4)).copyfrom(floats(1))
    errors: list[Exception] = []

    def handle(*_: object) -> None:
        for call in (lambda: vm["main"](floats(5)), lambda: staged.copyfrom(floats(5)), vm.close):
            try:
                call()
            except VmError as error:
                errors.append(error)

    before = signal.signal(signal.SIGUSR1, handle)
    ctrl_c.at, ctrl_c.signal = INFER, signal.SIGUSR1
    try:
        assert np.array_equal(vm["main"](staged).numpy(), 2 * floats(1))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert [type(error) for error in errors] == [VmError, InputBusy, VmError]
    assert np.array_equal(vm["main"](staged).numpy(), 2 * floats(1))
