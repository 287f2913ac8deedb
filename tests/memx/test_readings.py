"""What simulated chips tell of themselves: clocks, heat, power, work."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from repertory.models.errors import ConfigError
from repertory.transports.memx.constants import Status
from repertory.transports.memx.features import (
    ALL_CHIPS,
    GetFeature,
    HardwareInfo,
    SetFeature,
    feature_bytes,
    power_mw,
    utilisation,
)
from repertory.transports.memx.simulator.heat import Heat
from repertory.transports.memx.simulator.libmemx import SimulatedLibmemx
from repertory.transports.memx.simulator.parameters import SimulatedMx3
from repertory.transports.world import drive

from .files import Net, dfp
from .hand import HandWorld

FRAME, OUT = np.ones((4, 6, 1, 3), np.float32), np.empty((4, 6, 1, 2), np.float32)
LATENCY, INTERVAL = 0.010, 0.005


class Card:
    """A library by hand with one network running on group 0."""

    def __init__(self, **options: Any) -> None:
        self.world = HandWorld()
        mx3 = SimulatedMx3(answers="hash", depth=2, **options)
        self.library = SimulatedLibmemx(self.world, mx3)
        content = dfp(Net(outputs=1, latency=LATENCY, interval=INTERVAL))
        for call in (
            self.library.memx_open(0, 0, 31.0),
            self.library.memx_download_model(0, content, 0, 0x83),
            self.library.memx_set_stream_enable(0, 0),
        ):
            assert drive(call) == Status.OK

    def raw(self, opcode: int, chip: int = 0) -> bytes:
        status, value = drive(self.library.memx_get_feature(0, chip, opcode))
        assert status == Status.OK
        return value

    def get(self, opcode: int, chip: int = 0) -> int:
        return int.from_bytes(self.raw(opcode, chip), "little")

    def set(self, opcode: int, number: int, chip: int = 0) -> int:
        return drive(self.library.memx_set_feature(0, chip, opcode, number))

    def idle(self, seconds: float) -> None:
        self.world.clock += seconds

    def work(self, seconds: float) -> int:
        """Keep the chips as busy as they can be; return how many frames they did."""
        end, done = self.world.clock + seconds, 0
        while self.world.clock < end:
            while drive(self.library.memx_stream_ifmap(0, 0, FRAME, 1)) == Status.OK:
                pass
            assert drive(self.library.memx_stream_ofmap(0, 0, OUT, 1000)) == Status.OK
            done += 1
        return done

    def latency(self) -> float:
        """Return how long a lone frame takes."""
        while drive(self.library.memx_stream_ofmap(0, 0, OUT, 100)) == Status.OK:
            pass
        begin = self.world.clock
        assert drive(self.library.memx_stream_ifmap(0, 0, FRAME, 1)) == Status.OK
        assert drive(self.library.memx_stream_ofmap(0, 0, OUT, 1000)) == Status.OK
        return self.world.clock - begin


def test_every_opcode_writes_its_bytes() -> None:
    card = Card()
    for opcode in GetFeature:
        assert len(card.raw(opcode)) == feature_bytes(opcode)


def test_what_never_changes() -> None:
    card = Card(firmware=9)
    assert card.raw(GetFeature.KDRIVER_VERSION).rstrip(b"\0").decode("ascii") == "1.3.4_1"
    assert card.get(GetFeature.INTERFACE_INFO) & 0xFF == 2
    assert card.get(GetFeature.FW_COMMIT) == 9
    assert card.get(GetFeature.MODULE_INFORMATION) & 0xF == 5
    assert card.get(GetFeature.VOLTAGE) == 700


@pytest.mark.parametrize(("config", "parts"), [(0, (4, 1)), (1, (2, 2)), (4, (2, 1)), (2, (1, 1))])
def test_hardware_info_follows_the_configuration(config: int, parts: tuple[int, int]) -> None:
    library = SimulatedLibmemx(HandWorld(), SimulatedMx3())
    assert drive(library.memx_config_mpu_group(0, config)) == Status.OK
    _, value = drive(library.memx_get_feature(0, 0, GetFeature.HW_INFO))
    assert HardwareInfo.unpack(int.from_bytes(value, "little")) == HardwareInfo(31, 4, *parts)


def test_old_firmware_is_refused() -> None:
    library = SimulatedLibmemx(HandWorld(), SimulatedMx3(firmware=5))
    assert drive(library.memx_open(0, 0, 31.0)) == Status.FIRMWARE_TOO_OLD


@pytest.mark.parametrize(
    ("mhz", "status"), [(200, 0), (825, 0), (1000, 0), (199, 2), (610, 2), (1025, 2), (0xFFFF, 2)]
)
def test_frequencies_that_there_are(mhz: int, status: int) -> None:
    card = Card()
    assert card.set(SetFeature.FREQUENCY, mhz, ALL_CHIPS) == status
    assert card.get(GetFeature.FREQUENCY, 3) == (600 if status else mhz)


@pytest.mark.parametrize(("mv", "status"), [(670, 0), (850, 0), (665, 2), (701, 2)])
def test_voltages_that_there_are(mv: int, status: int) -> None:
    card = Card()
    assert card.set(SetFeature.VOLTAGE, mv) == status
    assert card.get(GetFeature.VOLTAGE) == (700 if status else mv)


@pytest.mark.parametrize("mhz", [300, 600, 1000])
def test_frames_take_their_time_at_a_clock(mhz: int) -> None:
    card = Card()
    assert card.set(SetFeature.FREQUENCY, mhz, ALL_CHIPS) == Status.OK
    assert card.latency() == pytest.approx(LATENCY * 600 / mhz)
    begin, frames = card.world.clock, card.work(2.0)
    assert (card.world.clock - begin) / frames == pytest.approx(INTERVAL * 600 / mhz, rel=0.02)


def test_one_slow_chip_slows_all() -> None:
    card = Card()
    assert card.set(SetFeature.FREQUENCY, 300, chip=2) == Status.OK
    assert [card.get(GetFeature.FREQUENCY, chip) for chip in range(4)] == [600, 600, 300, 600]
    assert card.latency() == pytest.approx(LATENCY * 2)


def test_work_warms_and_idleness_cools_with_the_time_constant() -> None:
    heat = Heat(ambient_k=300, kelvin_per_watt=20, seconds=2, idle_mw=500, busy_mw=1500)
    card = Card(heat=heat)
    assert card.get(GetFeature.TEMPERATURE) == 310
    card.work(2.0)
    risen = card.get(GetFeature.TEMPERATURE) - 310
    assert risen == pytest.approx(30 * (1 - np.exp(-1)), abs=1.5)
    card.work(10.0)
    assert card.get(GetFeature.TEMPERATURE) == pytest.approx(340, abs=1)
    card.idle(1000)
    card.get(GetFeature.TEMPERATURE)
    card.idle(1000)
    assert card.get(GetFeature.TEMPERATURE, 3) == 310


def test_a_hot_chip_halves_its_clock_until_it_is_cooler() -> None:
    card = Card()
    card.library.heat(0, 373)
    assert card.get(GetFeature.THERMAL_STATE) == 1
    assert card.get(GetFeature.FREQUENCY) == 600
    assert card.get(GetFeature.FREQUENCY_EFFECTIVE) == 300
    assert card.latency() == pytest.approx(2 * LATENCY)
    card.idle(1.0)
    assert card.get(GetFeature.TEMPERATURE) < 373
    assert card.get(GetFeature.THERMAL_STATE) == 1, "it is not five kelvin cooler"
    card.idle(100.0)
    assert card.get(GetFeature.THERMAL_STATE) == 0
    assert card.latency() == pytest.approx(LATENCY)


def test_in_a_hot_place_work_throttles_by_itself() -> None:
    card = Card(heat=Heat(ambient_k=350, seconds=5))
    cool, later = card.work(1.0), 0
    for _ in range(60):
        later = card.work(1.0)
        if card.get(GetFeature.THERMAL_STATE):
            break
    later = card.work(1.0)
    assert later == pytest.approx(cool / 2, rel=0.1)


def test_the_threshold_can_be_set() -> None:
    card = Card()
    assert card.set(SetFeature.THERMAL_THRESHOLD, 300) == Status.OK
    assert card.get(GetFeature.THERMAL_THRESHOLD) == 300
    assert card.get(GetFeature.THERMAL_STATE) == 1


def test_power_and_utilisation_follow_the_work() -> None:
    card = Card()
    card.idle(1.0)
    assert power_mw(card.get(GetFeature.POWER)) == 4 * 500
    assert utilisation(card.get(GetFeature.MPU_UTILIZATION)) == 0.0
    card.work(1.0)
    assert power_mw(card.get(GetFeature.POWER)) == pytest.approx(4 * 1500, rel=0.03)
    assert utilisation(card.get(GetFeature.MPU_UTILIZATION)) == pytest.approx(1.0, abs=0.03)
    assert [utilisation(card.get(GetFeature.MPU_UTILIZATION, chip)) for chip in (1, 2, 3)] == [None] * 3


def test_without_telemetry_power_is_unknown() -> None:
    assert power_mw(Card(heat=Heat(telemetry=False)).get(GetFeature.POWER)) is None


def test_throughput_counts_what_crossed() -> None:
    card = Card(bandwidth_mbs=1.0)
    frames = card.work(5.0)
    counters = struct.unpack("<16I", card.raw(GetFeature.THROUGHPUT))
    sent_us, sent_kb, *_ = counters
    assert sent_kb == pytest.approx(frames * FRAME.nbytes / 1024, abs=2)
    assert sent_us == pytest.approx(frames * FRAME.nbytes, rel=0.02)
    assert counters[6:8] == counters[4:6] != (0, 0)


def test_settings_are_kept() -> None:
    card = Card()
    for told, kept in (
        (SetFeature.IFMAP_CONTROL, GetFeature.IFMAP_CONTROL),
        (SetFeature.QSPI_RESET_RELEASE, GetFeature.QSPI_RESET_RELEASE),
        (SetFeature.POWERMANAGEMENT, GetFeature.POWERMANAGEMENT),
    ):
        assert card.set(told, 7) == Status.OK
        assert card.get(kept) == 7


def test_a_command_takes_its_time() -> None:
    card = Card(admin_ms=2)
    begin = card.world.clock
    card.get(GetFeature.TEMPERATURE)
    assert card.world.clock - begin == pytest.approx(0.002)


def test_an_idle_card_has_no_events() -> None:
    card = Card()
    card.latency()
    card.library.heat(0, 380)
    begin, card.world.steps = card.world.clock, 0
    assert drive(card.library.memx_stream_ofmap(0, 0, OUT, 5000)) == Status.OUTPUT_TIMEOUT
    assert card.world.steps == 1, "the clock went to the time-out in one step"
    assert card.world.clock == begin + 5.0


@pytest.mark.parametrize(
    "make", [lambda: Heat(seconds=0), lambda: Heat(ambient_k=-1), lambda: Heat(busy_mw=-1)]
)
def test_heat_that_no_chip_has(make: Callable[[], Heat]) -> None:
    with pytest.raises(ConfigError):
        make()
