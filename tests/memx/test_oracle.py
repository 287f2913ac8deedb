"""Random calls, against the simulator and an oracle that shares nothing with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from repertory.transports.memx.constants import Status
from repertory.transports.memx.library import FmapBuffer
from repertory.transports.memx.simulator.libmemx import SimulatedLibmemx
from repertory.transports.memx.simulator.parameters import SimulatedMx3
from repertory.transports.memx.simulator.rules import SimulatorFault
from repertory.transports.world import drive

from .files import Net, dfp
from .hand import Forever, HandWorld
from .oracle import CRASH, FOREVER, Crash, Oracle, Refused, Stuck, lanes_of

IN, IMAGE, MEAN = 4 * 6 * 3 * 4, 4 * 6 * 2 * 4, 2 * 4
LATENCY, INTERVAL = 0.0103173, 0.0041371  # nothing falls on a look, or on a time-out
DEPTH, POLL = 2, 10e-6


def net(name: str, **told: Any) -> Net:
    return Net(name, latency=LATENCY, interval=INTERVAL, **told)


def told(name: str, ins: range, outs: dict[int, int]) -> dict[str, Any]:
    inputs = dict.fromkeys(ins, IN)
    return {"name": name, "ins": inputs, "outs": outs, "latency": LATENCY, "interval": INTERVAL}


CONTENTS = {
    "one": dfp(net("one", outputs=1)),
    "wide": dfp(net("wide", inputs=2)),
    "pair": dfp(net("left", outputs=1), net("right", outputs=1, first_flow=1)),
    "two models": dfp(net("first", outputs=1), net("second", outputs=1, configuration=1, inputs=2)),
    "half": dfp(net("half", outputs=1), chips=2),
    "rubbish": (6).to_bytes(8, "little") + b"\x01rubbish",
    "missing": b"/nowhere",
}
FILES: dict[str, Any] = {
    "one": {"chips": 4, "models": {0: [told("one", range(1), {0: IMAGE})]}},
    "wide": {"chips": 4, "models": {0: [told("wide", range(2), {0: IMAGE, 1: MEAN})]}},
    "pair": {
        "chips": 4,
        "models": {0: [told("left", range(1), {0: IMAGE}), told("right", range(1, 2), {1: IMAGE})]},
    },
    "two models": {
        "chips": 4,
        "models": {0: [told("first", range(1), {0: IMAGE})], 1: [told("second", range(2), {0: IMAGE})]},
    },
    "half": {"chips": 2, "models": {0: [told("half", range(1), {0: IMAGE})]}},
}
for name, file in FILES.items():
    file["bytes"] = len(CONTENTS[name])

ids = st.sampled_from([0, 0, 0, 0, 0, 0, 0, 1, 1, 31, 32])
groups = st.sampled_from([0, 0, 0, 1, 2])
flows = st.sampled_from([0, 0, 0, 0, 0, 1, 1, 1, 31, 32])
timeouts = st.sampled_from([20, 1, 5, 60, 20, 60, 0, -1, 21_474_836])
files = st.sampled_from(["one", "one", "wide", "pair", "two models", "half", "rubbish", "missing"])
sizes = st.sampled_from([4, 2, 3, 9, 1000, 1, 0, 1001])
null = st.sampled_from([False] * 19 + [True])
either = st.booleans()


def one(name: str, *args: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(st.just(name), *args)


ADMIN = st.one_of(
    one("lock", groups, either),
    one("unlock", groups),
    one("config", groups, st.sampled_from([0, 0, 1, 2, 4, 5, 8])),
    one("parts", groups),
    one("frequency", groups, st.sampled_from([600, 300, 1000, 610, 1025])),
    one("sleep", groups, st.sampled_from([False, False, True])),
    one("power", ids, st.sampled_from([0, 0, 0, 1, 2, 3, 4])),
    one("generation", ids),
    one("fail_download"),
    one("fail_weights"),
    one("break_down", st.integers(0, 1), st.sampled_from(["hung", "gone"]), st.integers(0, 9)),
    one("abort", ids, st.integers(0, 4)),
)
CONTEXT = st.one_of(
    one("open", ids, groups),
    one("open", ids, groups),
    one("close", ids),
    one("reconfigure", ids, groups),
    one("queue_size", ids, sizes, either),
    one("size", ids, flows, either),
    one("range_convert", ids, flows),
    one("hpoc", ids, flows),
)


class Conversation(RuleBasedStateMachine):
    """Calls of one caller, who never waits for another."""

    profile: Any = "strict"

    def __init__(self) -> None:
        super().__init__()
        self.sent = 0
        self.start()

    def start(self) -> None:
        compat = self.profile != "strict"
        factor = 8.5 if compat else 1.0
        step = POLL * factor if compat else 0.0
        mx3 = SimulatedMx3(groups=2, depth=DEPTH, profile=self.profile, answers="hash")
        self.world = HandWorld()
        self.library = SimulatedLibmemx(self.world, mx3)
        self.oracle = Oracle(
            FILES, compat=compat, depth=DEPTH, step=step, factor=factor, now=self.world.clock
        )
        self.loans: list[tuple[FmapBuffer, Any]] = []

    @initialize(ready=st.sampled_from(["one", "wide", "pair", None]), run=either)
    def warm_up(self, ready: str | None, run: bool) -> None:
        if ready is not None:
            self.open(0, 0)
            self.download(0, ready, 0, 3)
            if run:
                self.enable(0, False)

    def compare(self, call: Any, predict: Any) -> tuple[Any, Any]:
        """Return what the call gives, and the prediction, once their statuses and clocks agree."""
        self.oracle.advance(self.world.clock)
        expected: Any = None
        status: Any = Status.OK
        try:
            expected = predict()
        except Refused as refused:
            status = refused.args[0]
        except Stuck:
            status = FOREVER
        except Crash:
            status = CRASH
        except BaseException:
            call.close()
            raise
        result = self.result(call)
        assert (result if isinstance(result, str | int) else result[0]) == status
        if status == CRASH:  # nobody says what comes then
            self.start()
            self.warm_up("one", True)
            return None, None
        if status != FOREVER:
            assert self.world.clock == pytest.approx(self.oracle.now, abs=1e-7)
        self.oracle.now = self.world.clock
        return (result, expected) if status == Status.OK else (None, None)

    def result(self, call: Any) -> Any:
        try:
            return drive(call)
        except Forever:
            return FOREVER
        except SimulatorFault:
            return CRASH

    def frame(self) -> bytes:
        self.sent += 1
        return self.sent.to_bytes(4, "little") * (IN // 4)

    @rule(step=ADMIN)
    def admin(self, step: tuple[Any, ...]) -> None:
        getattr(self, step[0])(*step[1:])

    @rule(step=CONTEXT)
    def context(self, step: tuple[Any, ...]) -> None:
        getattr(self, step[0])(*step[1:])

    @rule(model_id=st.integers(0, 1), frames=st.integers(1, 5), lent=either)
    def exchange(self, model_id: int, frames: int, lent: bool) -> None:
        """Send frames to all flows that there are, and read some: what a driver does."""
        context = self.oracle.contexts.get(model_id)
        lanes = lanes_of(context) if context else []
        for side in ("ins", "outs"):
            for _ in range(frames):
                for lane in lanes:
                    for flow in lane["net"][side]:
                        self.move(model_id, flow, output=side == "outs", lent=lent)

    def move(self, model_id: int, flow: int, *, output: bool, lent: bool) -> None:
        if not lent:
            (self.read if output else self.write)(model_id, flow, 20, False)
            return
        before = len(self.loans)
        self.borrow(model_id, flow, 20, output)
        if len(self.loans) > before:
            self.give(model_id, flow, output, 1)

    # -- device groups

    def lock(self, group: int, wait: bool) -> None:
        call = self.library.memx_lock if wait else self.library.memx_trylock
        self.compare(call(group), lambda: self.oracle.lock(group, wait=wait))

    def unlock(self, group: int) -> None:
        self.compare(self.library.memx_unlock(group), lambda: self.oracle.unlock(group))

    def config(self, group: int, config: int) -> None:
        call = self.library.memx_config_mpu_group(group, config)
        self.compare(call, lambda: self.oracle.config(group, config))

    def parts(self, group: int) -> None:
        call = self.library.memx_operation_get_mpu_group_count(group)
        found, group_of = self.compare(call, lambda: self.oracle.group(group))
        assert found is None or found[1] == group_of["halves"]

    def frequency(self, group: int, mhz: int) -> None:
        call = self.library.memx_set_feature(group, 0xFF, 1, mhz)
        self.compare(call, lambda: self.oracle.frequency(group, mhz))

    def sleep(self, group: int, enter: bool) -> None:
        library = self.library
        call = library.memx_enter_device_deep_sleep if enter else library.memx_exit_device_deep_sleep
        self.compare(call(group), lambda: self.oracle.sleep(group, enter=enter))

    # -- contexts

    def open(self, model_id: int, group: int) -> None:
        call = self.library.memx_open(model_id, group, 31.0)
        self.compare(call, lambda: self.oracle.open(model_id, group))

    def close(self, model_id: int) -> None:
        self.compare(self.library.memx_close(model_id), lambda: self.oracle.close(model_id))

    def reconfigure(self, model_id: int, group: int) -> None:
        if self.profile != "strict":
            return
        call = self.library.memx_reconfigure(model_id, group)
        self.compare(call, lambda: self.oracle.reconfigure(model_id, group))

    def queue_size(self, model_id: int, size: int, output: bool) -> None:
        library = self.library
        call = library.memx_set_ofmap_queue_size if output else library.memx_set_ifmap_queue_size
        self.compare(call(model_id, size), lambda: self.oracle.queue_size(model_id, size, output=output))

    def power(self, model_id: int, state: int) -> None:
        call = self.library.memx_set_powerstate(model_id, state)
        self.compare(call, lambda: self.oracle.power(model_id, state))

    def generation(self, model_id: int) -> None:
        self.compare(self.library.memx_get_chip_gen(model_id), lambda: self.oracle.context(model_id))

    # -- downloads

    @rule(
        model_id=ids,
        file=files,
        index=st.sampled_from([0, 0, 0, 1]),
        kind=st.sampled_from([3, 3, 3, 1, 2, 0]),
    )
    def download(self, model_id: int, file: str, index: int, kind: int) -> None:
        source = 0 if file == "missing" else 0x80
        call = self.library.memx_download_model(model_id, CONTENTS[file], index, kind | source)
        self.compare(call, lambda: self.oracle.download(model_id, file, index, kind))

    def fail_download(self) -> None:
        self.library.fail_download()
        self.oracle.failing = 1

    def fail_weights(self) -> None:
        self.library.fail_weights()
        self.oracle.failing_weights = 1

    # -- streams

    @rule(model_id=ids, wait=st.sampled_from([False, False, False, True]))
    def enable(self, model_id: int, wait: bool) -> None:
        call = self.library.memx_set_stream_enable(model_id, int(wait))
        self.compare(call, lambda: self.oracle.enable(model_id, wait=wait))

    @rule(model_id=ids, wait=st.booleans())
    def disable(self, model_id: int, wait: bool) -> None:
        call = self.library.memx_set_stream_disable(model_id, int(wait))
        self.compare(call, lambda: self.oracle.disable(model_id, wait=wait))

    def size(self, model_id: int, flow: int, output: bool) -> None:
        library = self.library
        call = library.memx_get_ofmap_size if output else library.memx_get_ifmap_size
        found, lane = self.compare(
            call(model_id, flow),
            lambda: self.oracle.size(model_id, flow, output=output, unknown=Status.SIZE_UNKNOWN),
        )
        if found is not None:
            wanted = lane["net"]["outs" if output else "ins"][flow]
            assert 4 * np.prod(found[1:5]) == wanted

    def range_convert(self, model_id: int, flow: int) -> None:
        unknown = Status.RANGE_CONVERT_UNKNOWN
        self.compare(
            self.library.memx_get_ifmap_range_convert(model_id, flow),
            lambda: self.oracle.size(model_id, flow, output=False, unknown=unknown),
        )

    def hpoc(self, model_id: int, flow: int) -> None:
        self.compare(
            self.library.memx_get_ofmap_hpoc(model_id, flow),
            lambda: self.oracle.size(model_id, flow, output=True, unknown=Status.HPOC_UNKNOWN),
        )

    @rule(model_id=ids, flow=flows, timeout=timeouts, null=null)
    def write(self, model_id: int, flow: int, timeout: int, null: bool) -> None:
        frame = self.frame()
        array = None if null else np.frombuffer(frame, np.uint8)
        call = self.library.memx_stream_ifmap(model_id, flow, array, timeout)
        self.compare(call, lambda: self.oracle.push(model_id, flow, frame, timeout, null=null))

    @rule(model_id=ids, flow=flows, timeout=timeouts, null=null)
    def read(self, model_id: int, flow: int, timeout: int, null: bool) -> None:
        array = None if null else np.zeros(IMAGE, np.uint8)
        call = self.library.memx_stream_ofmap(model_id, flow, array, timeout)
        found, frame = self.compare(call, lambda: self.oracle.pull(model_id, flow, timeout, null=null))
        if found is not None and frame is not None:
            assert array is not None
            assert array.tobytes()[: len(frame)] == frame

    @rule(model_id=ids, flow=flows, timeout=timeouts, output=st.booleans())
    def borrow(self, model_id: int, flow: int, timeout: int, output: bool) -> None:
        library = self.library
        call = library.memx_dequeue_ofmap_buf if output else library.memx_dequeue_ifmap_buf
        found, told = self.compare(
            call(model_id, flow, timeout), lambda: self.oracle.borrow(model_id, flow, timeout, output=output)
        )
        if found is not None:
            loan, frame = told
            assert frame is None or found[1].data.tobytes() == frame
            self.loans.append((found[1], loan))

    @rule(model_id=ids, flow=flows, output=st.booleans(), which=st.integers(0, 3))
    def give(self, model_id: int, flow: int, output: bool, which: int) -> None:
        foreign: tuple[FmapBuffer, Any] = (FmapBuffer(0, np.zeros(IN, np.uint8)), None)
        buffer, loan = self.loans[-which] if 0 < which <= len(self.loans) else foreign
        frame = self.frame()[: buffer.data.nbytes]
        if loan is not None and loan["open"]:
            buffer.data[:] = np.frombuffer(frame, np.uint8)
        library = self.library
        call = library.memx_enqueue_ofmap_buf if output else library.memx_enqueue_ifmap_buf
        self.compare(
            call(model_id, flow, buffer, 1),
            lambda: self.oracle.give(model_id, flow, loan, frame, output=output),
        )

    # -- time, and what goes wrong

    @rule(seconds=st.sampled_from([1e-4, 0.002, 0.02, 1.0]))
    def passes(self, seconds: float) -> None:
        self.world.clock += seconds

    def break_down(self, group: int, fault: str, likely: int) -> None:
        if likely == 9:
            self.oracle.advance(self.world.clock)
            self.oracle.groups[group]["halts"].add(fault)
            (self.library.hang if fault == "hung" else self.library.gone)(group)

    def abort(self, model_id: int, likely: int) -> None:
        if likely == 4:
            call = self.library.memx_set_abort_read(model_id)
            self.compare(call, lambda: self.oracle.abort(model_id))

    @invariant()
    def counts_stay(self) -> None:
        assert drive(self.library.memx_operation_get_device_count()) == (Status.OK, 2)


class CompatConversation(Conversation):
    profile = "compat-2.11"


HURRY = settings(
    max_examples=80,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=(HealthCheck.too_slow, HealthCheck.filter_too_much),
)
Conversation.TestCase.settings = HURRY
CompatConversation.TestCase.settings = HURRY
TestStrict = Conversation.TestCase
TestCompat = CompatConversation.TestCase
