"""The state machine, by a clock that the test moves: the strict rows of the library's state tables."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from repertory.models.errors import ConfigError
from repertory.transports.memx.constants import DownloadType, Status
from repertory.transports.memx.simulator.admin import Admin
from repertory.transports.memx.simulator.board import Halt
from repertory.transports.memx.simulator.core import Core
from repertory.transports.memx.simulator.downloads import Download, Downloads
from repertory.transports.memx.simulator.flow import Flow
from repertory.transports.memx.simulator.image import ChipPort, Image, Images
from repertory.transports.memx.simulator.lane import Inference
from repertory.transports.memx.simulator.parameters import SimulatedMx3
from repertory.transports.memx.simulator.rules import SimulatorFault, StatusError

from .files import Net, dfp

BOTH = DownloadType.WEIGHTS_AND_MODEL
FRAME = bytes(4 * 6 * 3 * 4)
MX3 = SimulatedMx3(groups=2, latency_ms=10, interval_ms=4, answers="hash")


class Refused:
    """Asserts that its block is refused with one status."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> bool:
        assert isinstance(error, StatusError), f"{error!r} instead of {self._status.label}"
        assert error.status is self._status
        return True


refused = Refused


def image(*nets: Net, mx3: SimulatedMx3 = MX3, chips: int = 4) -> Image:
    return Images(mx3).read(dfp(*(nets or (Net(outputs=1),)), chips=chips))


def download(core: Core, model_id: int, file: Image, kind: DownloadType = BOTH, index: int = 0) -> float:
    """Download from time 0 on, and return when it ended."""
    downloads = Downloads(core)
    begun = downloads.begin(model_id, file, index, kind, 0.0)
    downloads.end(begun, begun.until)
    return begun.until


def begin(core: Core, model_id: int, now: float, index: int = 0, kind: DownloadType = BOTH) -> Download:
    return Downloads(core).begin(model_id, image(), index, kind, now)


def config(core: Core, group_id: int, number: int, now: float = 0.0) -> None:
    Admin(core).config_mpu_group(group_id, number, now)


def port(core: Core, model_id: int, flow_id: int, *, output: bool = False) -> ChipPort:
    return core.flow_port(model_id, flow_id, output=output, unknown=Status.SIZE_UNKNOWN)


def running(mx3: SimulatedMx3 = MX3, *nets: Net, slots: tuple[int, int] = (4, 4)) -> tuple[Core, float]:
    """Return a core with context 0 running on group 0, and the time."""
    core = Core(mx3)
    core.open(0, 0)
    core.set_ifmap_queue_size(0, slots[0])
    core.set_ofmap_queue_size(0, slots[1])
    now = download(core, 0, image(*nets, mx3=mx3))
    core.enable(0, now)
    return core, now


def write(core: Core, now: float, flow_id: int = 0, model_id: int = 0) -> bool:
    return flow(core, flow_id, model_id).push(FRAME, now)


def read(core: Core, now: float, flow_id: int = 0) -> Inference | None:
    """Take as a reader does that computes in no time."""
    channel = core.flow(0, flow_id, 1, output=True, null=False)
    taken = channel.take(now)
    if taken is not None and taken.outputs is None:
        taken.outputs = taken.network.answer(taken.inputs)
        taken = channel.take(now)
    return taken


def flow(core: Core, flow_id: int = 0, model_id: int = 0, *, output: bool = False) -> Flow:
    return core.flow(model_id, flow_id, 1, output=output, null=False)


# -- device groups


@pytest.mark.parametrize(
    ("chips", "accepted"), [(1, {2}), (2, {2, 4}), (3, {2, 3, 4}), (4, {0, 1, 2, 3, 4}), (16, set(range(8)))]
)
def test_a_configuration_needs_its_chips(chips: int, accepted: set[int]) -> None:
    core = Core(SimulatedMx3(chips=chips))
    for number in range(8):
        if number in accepted:
            config(core, 0, number)
        else:
            with refused(Status.NOT_ENOUGH_CHIPS):
                config(core, 0, number)
    with refused(Status.BAD_ARGUMENT):
        config(core, 0, 8)


def test_a_file_is_for_the_chips_that_are_configured() -> None:
    core = Core(MX3)
    core.open(0, 0)
    with refused(Status.DOWNLOAD_FAILED):
        download(core, 0, image(chips=2))
    config(core, 0, 4, 0.0)
    download(core, 0, image(chips=2))
    with refused(Status.DOWNLOAD_FAILED):
        download(core, 0, image(chips=4))


# -- model contexts


def test_ids_beyond_the_table() -> None:
    core = Core(MX3)
    for model_id in (32, 255, -1):
        with refused(Status.BAD_MODEL_ID):
            core.open(model_id, 0)
        with refused(Status.BAD_MODEL_ID):
            core.close(model_id, 0.0)
        with refused(Status.BAD_MODEL_ID):
            core.enable(model_id, 0.0)
        with refused(Status.BAD_ENGINE):
            port(core, model_id, 0)


def test_a_closed_context() -> None:
    core = Core(MX3)
    core.close(3, 0.0)
    with refused(Status.CONTEXT_NOT_OPEN):
        core.enable(3, 0.0)
    with refused(Status.CONTEXT_NOT_OPEN):
        core.disable(3, 0.0, drain=False)
    with refused(Status.CONTEXT_NOT_OPEN):
        core.set_ifmap_queue_size(3, 4)
    with refused(Status.CONTEXT_NOT_OPEN):
        core.set_ofmap_queue_size(3, 4)
    with refused(Status.CONTEXT_NOT_OPEN):
        core.reconfigure(3, 0, 0.0)
    with refused(Status.CONTEXT_NOT_OPEN):
        begin(core, 3, 0.0)
    with refused(Status.CONTEXT_NOT_OPEN):
        core.flow(3, 0, 1, output=False, null=False)
    with pytest.raises(SimulatorFault, match="crashes"):
        port(core, 3, 0, output=True)


def test_opens_are_counted_and_bound_to_one_group() -> None:
    core = Core(MX3)
    core.open(0, 0)
    core.open(0, 0)
    with refused(Status.CONTEXT_ON_OTHER_GROUP):
        core.open(0, 1)
    core.close(0, 0.0)
    core.enable(0, 0.0)
    core.close(0, 0.0)
    with refused(Status.CONTEXT_NOT_OPEN):
        core.enable(0, 0.0)
    core.open(0, 1)


def test_an_open_context_has_no_flows() -> None:
    core = Core(MX3)
    core.open(0, 0)
    core.enable(0, 0.0)
    core.disable(0, 0.0, drain=True)
    assert core.settled(0, 0.0)
    with refused(Status.INPUT_FLOW_NOT_CONFIGURED):
        core.flow(0, 0, 1, output=False, null=False)
    with refused(Status.OUTPUT_FLOW_NOT_CONFIGURED):
        core.flow(0, 0, 1, output=True, null=False)
    with refused(Status.SIZE_UNKNOWN):
        port(core, 0, 0)


@pytest.mark.parametrize(
    ("flow_id", "null", "timeout", "status"),
    [
        (32, True, -1, Status.BAD_FLOW_ID),
        (5, True, -1, Status.INPUT_FLOW_NOT_CONFIGURED),
        (0, True, -1, Status.NULL_POINTER),
        (0, False, -1, Status.BAD_ARGUMENT),
        (0, False, 21_474_836, Status.BAD_ARGUMENT),
    ],
)
def test_stream_calls_check_in_this_order(flow_id: int, null: bool, timeout: int, status: Status) -> None:
    core, _ = running()
    with refused(status):
        core.flow(0, flow_id, timeout, output=False, null=null)
    core.flow(0, 0, 21_474_835, output=False, null=False)


def test_sizes_are_those_of_the_file() -> None:
    core, _ = running(MX3, Net(outputs=2))
    assert port(core, 0, 0).shape == (4, 6, 1, 3)
    assert port(core, 0, 1, output=True).shape == (1, 1, 1, 2)
    assert port(core, 0, 1, output=True).format == 5
    with refused(Status.SIZE_UNKNOWN):
        port(core, 0, 1)


@pytest.mark.parametrize("size", [-1, 0, 1001])
def test_queue_sizes_out_of_range(size: int) -> None:
    core = Core(MX3)
    core.open(0, 0)
    with refused(Status.BAD_QUEUE_SIZE):
        core.set_ifmap_queue_size(0, size)
    with refused(Status.BAD_QUEUE_SIZE):
        core.set_ofmap_queue_size(0, size)


@pytest.mark.parametrize(("size", "frames"), [(4, 3), (1, 0), (2, 1), (1000, 999)])
def test_a_ring_holds_one_less_than_its_size(size: int, frames: int) -> None:
    core, now = running(slots=(size, 4))
    core.disable(0, now, drain=False)
    accepted = 0
    while write(core, now):
        accepted += 1
    assert accepted == frames


@pytest.mark.parametrize(("again", "fit"), [(False, 3), (True, 1)])
def test_queue_sizes_wait_for_the_next_download(again: bool, fit: int) -> None:
    core = Core(MX3)
    core.open(0, 0)
    download(core, 0, image())
    core.set_ifmap_queue_size(0, 2)
    if again:
        download(core, 0, image())
    assert [write(core, 1.0) for _ in range(fit + 1)] == [True] * fit + [False]


@pytest.mark.parametrize(("depth", "frames"), [(1, 7), (4, 10), (8, 14)])
def test_frames_in_flight_with_nobody_reading(depth: int, frames: int) -> None:
    core, now = running(SimulatedMx3(depth=depth, answers="hash"))
    accepted = 0
    for _ in range(100):
        now += 1.0
        accepted += write(core, now)
    assert accepted == frames
    core.advance(now + 100)
    assert core.next_event(now + 100) == math.inf


# -- downloads


def test_a_model_that_the_file_does_not_hold() -> None:
    core = Core(MX3)
    core.open(0, 0)
    with refused(Status.DFP_BAD_CONTENT):
        begin(core, 0, 0.0, index=1)
    begin(core, 0, 0.0, 1, DownloadType.WEIGHTS)  # ignored for weights alone


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", Status.DFP_VERSION_REFUSED),
        ((7).to_bytes(8, "little"), Status.DFP_VERSION_REFUSED),
        ((5).to_bytes(8, "little"), Status.DFP_READ_ERROR),
        ((6).to_bytes(8, "little") + b"\x01rubbish", Status.DFP_BAD_CONTENT),
    ],
)
def test_files_that_are_none(content: bytes, status: Status) -> None:
    with refused(status):
        Images(MX3).read(content)


def test_a_swap_takes_its_fixed_part_and_the_transfer() -> None:
    mx3 = SimulatedMx3(swap_ms=15, bandwidth_mbs=1000, answers="hash")
    file = image(mx3=mx3)
    transfer = file.weights / 1e9
    core = Core(mx3)
    core.open(0, 0)
    assert download(core, 0, file) == pytest.approx(0.015 + transfer)
    assert download(core, 0, file, DownloadType.WEIGHTS) == pytest.approx(0.012 + transfer)
    assert download(core, 0, file, DownloadType.MODEL) == pytest.approx(0.003)


def test_weights_alone_configure_no_flow_and_serve_every_model_of_the_file() -> None:
    core = Core(MX3)
    core.open(0, 0)
    file = image(Net("a", configuration=0, outputs=1), Net("b", configuration=1, inputs=2))
    download(core, 0, file, DownloadType.WEIGHTS)
    with refused(Status.SIZE_UNKNOWN):
        port(core, 0, 0)
    for index, inputs in enumerate((1, 2)):
        download(core, 0, file, DownloadType.MODEL, index)
        port(core, 0, inputs - 1, output=False)
        core.enable(0, 1.0)
        core.disable(0, 1.0, drain=True)


def test_a_model_without_its_weights_is_a_fault_when_it_is_run() -> None:
    core = Core(MX3)
    core.open(0, 0)
    download(core, 0, image(), DownloadType.MODEL)
    with pytest.raises(SimulatorFault, match="without its weights"):
        core.enable(0, 1.0)


def test_weights_of_another_file_are_not_its_own() -> None:
    core = Core(MX3)
    core.open(0, 0)
    core.open(1, 0)
    first = image()
    download(core, 0, first)
    download(core, 1, image(Net("other")), DownloadType.WEIGHTS)
    with pytest.raises(SimulatorFault, match="without its weights"):
        core.enable(0, 1.0)


def test_a_failed_download_leaves_the_context_and_forgets_the_chips() -> None:
    core, now = running()
    core.disable(0, now, drain=True)
    downloads = Downloads(core)
    downloads.failing = 1
    begun = downloads.begin(0, image(Net("b", inputs=2)), 0, BOTH, now)
    with refused(Status.DOWNLOAD_FAILED):
        downloads.end(begun, begun.until)
    assert port(core, 0, 0).number == 0
    with pytest.raises(SimulatorFault, match="loaded with last"):
        core.enable(0, now)
    download(core, 0, image())
    core.enable(0, now)


# -- what hardware would answer with garbage


def test_a_context_is_misplaced_after_another_was_downloaded() -> None:
    core, now = running()
    core.open(1, 0)
    core.disable(0, now, drain=True)
    download(core, 1, image())
    assert write(core, now)  # paused: accepted, and goes nowhere
    with pytest.raises(SimulatorFault, match=r"context 0 .* loaded with last"):
        core.enable(0, now)


def test_an_enabled_context_keeps_its_program() -> None:
    core, now = running()
    core.open(1, 0)
    with pytest.raises(SimulatorFault, match=r"context 0 .* is enabled"):
        begin(core, 1, now)
    with pytest.raises(SimulatorFault, match="is enabled"):
        config(core, 0, 0, now)
    with pytest.raises(SimulatorFault, match="is enabled"):
        core.reconfigure(1, 0, now)
    with pytest.raises(SimulatorFault, match="is enabled"):
        core.reconfigure(0, 1, now)


def test_reconfigure_binds_and_loads_nothing() -> None:
    core, now = running()
    core.disable(0, now, drain=True)
    core.reconfigure(0, 1, now)
    with refused(Status.INPUT_FLOW_NOT_CONFIGURED):
        core.flow(0, 0, 1, output=False, null=False)
    with pytest.raises(SimulatorFault, match="reconfigured"):
        core.enable(0, now)
    with refused(Status.CONTEXT_ON_OTHER_GROUP):
        core.open(0, 0)
    download(core, 0, image())
    core.enable(0, now)


def frame_in_ring(core: Core, now: float) -> None:
    flow(core, 1).push(FRAME, now)  # the other input has none, so it waits


def frame_on_chips(core: Core, now: float) -> None:
    for flow_id in (0, 1):
        flow(core, flow_id).push(FRAME, now)
    core.advance(now)


def frame_unread(core: Core, now: float) -> None:
    frame_on_chips(core, now - 0.02)


@pytest.mark.parametrize("place", [frame_in_ring, frame_on_chips, frame_unread])
@pytest.mark.parametrize("call", ["download", "reconfigure", "config", "close"])
def test_nothing_is_rebound_with_a_transfer_in_flight(
    place: Callable[[Core, float], None], call: str
) -> None:
    core, now = running(MX3, Net(inputs=2, outputs=1))
    core.open(1, 0)
    place(core, now)
    calls: dict[str, Callable[[], object]] = {
        "download": lambda: begin(core, 1, now),
        "reconfigure": lambda: core.reconfigure(1, 0, now),
        "config": lambda: config(core, 0, 0, now),
        "close": lambda: core.close(0, now),
    }
    with pytest.raises(SimulatorFault, match=f"memx_{call}.*context 0 on group 0 has a transfer in flight"):
        calls[call]()


def test_a_frame_behind_a_disabled_context_hinders_nobody_else() -> None:
    core, now = running()
    core.disable(0, now, drain=False)
    assert write(core, now)
    core.open(1, 0)
    download(core, 1, image())
    assert core.next_event(now) == math.inf


@pytest.mark.parametrize("call", ["reconfigure", "download_model"])
def test_a_frame_behind_a_disabled_context_must_not_be_lost(call: str) -> None:
    core, now = running()
    core.disable(0, now, drain=False)
    assert write(core, now)
    calls: dict[str, Callable[[], object]] = {
        "reconfigure": lambda: core.reconfigure(0, 0, now),
        "download_model": lambda: download(core, 0, image()),
    }
    with pytest.raises(SimulatorFault, match=f"memx_{call}: .* would lose a frame in flight"):
        calls[call]()


def test_nothing_runs_during_a_download() -> None:
    core, now = running()
    begin(core, 0, now)
    with pytest.raises(SimulatorFault, match="during a download"):
        write(core, now)
    with pytest.raises(SimulatorFault, match=r"a download .* is going on"):
        begin(core, 0, now)


# -- time


def test_a_frame_enters_at_its_interval_and_leaves_after_its_latency() -> None:
    core, start = running()
    for _ in range(3):
        assert write(core, start)
    entries = (start, start + 0.004, start + 0.008)
    for entry in entries:
        done = entry + 0.010
        assert read(core, done - 1e-6) is None
        taken = read(core, done)
        assert taken is not None
        assert taken.done == pytest.approx(done)


def test_events_lie_after_the_present_and_end() -> None:
    core, now = running()
    for _ in range(3):
        assert write(core, now)
    times: list[float] = []
    while (event := core.next_event(now)) < math.inf:
        assert event > now
        times.append(round(event - 0.015, 3))
        now = event
    start = times[0] - 0.004
    assert times == pytest.approx([start + offset for offset in (0.004, 0.008, 0.010, 0.014, 0.018)])


def test_looking_late_gives_the_same_times_as_looking_often() -> None:
    core, now = running()
    for _ in range(3):
        assert write(core, now)
    assert [taken.done - now for _ in range(3) if (taken := read(core, now + 1))] == pytest.approx(
        [0.010, 0.014, 0.018]
    )


def test_an_inference_waits_for_every_input() -> None:
    core, now = running(MX3, Net(inputs=2, outputs=1))
    assert write(core, now, 0)
    assert core.next_event(now) == math.inf
    assert write(core, now + 1, 1)
    assert core.next_event(now + 1) == pytest.approx(now + 1.010)


def test_resident_networks_have_lanes_of_their_own() -> None:
    core, now = running(MX3, Net("a", outputs=1), Net("b", outputs=1, first_flow=1))
    assert write(core, now, 0)
    assert write(core, now, 1)
    second = read(core, now + 0.010, 1)
    assert second is not None
    assert second.network.name == "b"


def test_disable_pauses_and_enable_goes_on_in_order() -> None:
    core, now = running()
    core.disable(0, now, drain=False)
    assert write(core, now)
    assert read(core, now + 1) is None
    core.enable(0, now + 1)
    assert read(core, now + 1.009) is None
    assert read(core, now + 1.010) is not None


def test_a_drain_waits_for_the_chips_and_not_for_the_queue() -> None:
    core, now = running()
    assert write(core, now)
    core.advance(now)
    assert write(core, now)
    core.disable(0, now, drain=True)
    assert not core.settled(0, now + 0.009)
    assert core.settled(0, now + 0.010)
    assert read(core, now + 0.010) is not None
    assert read(core, now + 1) is None  # the second stayed in the queue
    core.enable(0, now + 1)
    assert read(core, now + 1.010) is not None


def test_a_drain_ends_where_a_full_output_queue_stops_it() -> None:
    core, now = running(slots=(4, 2))
    for _ in range(3):
        assert write(core, now)
    core.advance(now + 0.008)
    core.disable(0, now + 0.008, drain=True)
    assert not core.settled(0, now + 0.013)
    assert core.next_event(now + 0.013) == pytest.approx(now + 0.014)
    assert core.settled(0, now + 0.014)


def test_a_hung_group_stands_still_and_the_others_go_on() -> None:
    core, now = running()
    core.open(1, 1)
    download(core, 1, image())
    core.enable(1, now)
    assert write(core, now)
    assert write(core, now, model_id=1)
    core.groups[0].halt(Halt.HUNG, now)
    assert read(core, now + 100) is None
    assert flow(core, 0, 1, output=True).take(now + 100) is not None
    assert core.close_hangs(0)
    assert not core.close_hangs(1)
    core.disable(0, now, drain=True)
    assert not core.settled(0, now + 100)


def test_nobody_is_accused_on_a_hung_group() -> None:
    core, now = running()
    core.open(1, 0)
    assert write(core, now)
    core.groups[0].halt(Halt.HUNG, now)
    core.reconfigure(1, 0, now)
    core.enable(0, now)
    assert begin(core, 1, now).until == math.inf
    assert begin(core, 1, now).until == math.inf


# -- channels that a call holds on to


def test_a_channel_of_a_closed_context_tells_whoever_waits() -> None:
    core, now = running()
    held = flow(core, output=True)
    core.close(0, now)
    with refused(Status.CONTEXT_NOT_OPEN):
        held.take(now)


def test_in_compat_a_channel_of_a_closed_context_stays_silent() -> None:
    core, now = running(replace(MX3, profile="compat-2.11"))
    held = flow(core, output=True)
    core.close(0, now)
    assert held.take(now) is None
    assert held.next_event() == math.inf
    core.open(0, 0)
    download(core, 0, image())
    assert held.take(now) is None


def test_two_readers_of_a_frame_share_one_answer() -> None:
    core, now = running(MX3, Net(outputs=2))
    assert write(core, now)
    first, second = flow(core, 0, output=True), flow(core, 1, output=True)
    claimed = first.take(now)
    assert claimed is not None
    assert second.take(now + 1) is None
    claimed.outputs = claimed.network.answer(claimed.inputs)
    assert second.take(now + 1) is claimed
    assert first.take(now + 1) is claimed


# -- parameters


def test_a_pace_that_the_twin_tells_wins() -> None:
    mx3 = SimulatedMx3(latency_ms=8, depth=4)
    assert mx3.pace(None, None) == (0.008, 0.002)
    assert mx3.pace(0.1, None) == (0.1, 0.025)
    assert mx3.pace(0.1, 0.5) == (0.1, 0.5)
    assert SimulatedMx3(latency_ms=8, interval_ms=3).pace(None, None) == (0.008, 0.003)
    assert SimulatedMx3(interval_ms=3).pace(0.1, None) == (0.1, 0.003)


@pytest.mark.parametrize(
    "wrong",
    [
        {"groups": -1},
        {"chips": 17},
        {"depth": 0},
        {"latency_ms": -1.0},
        {"bandwidth_mbs": 0.0},
        {"admin_ms": -1.0},
        {"poll_factor": 0.5},
        {"profile": "lax"},
    ],
)
def test_parameters_that_no_device_has(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        SimulatedMx3(**wrong)
