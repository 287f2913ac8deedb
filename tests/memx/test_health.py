"""What a group tells of its health, and how it reaches the statistics."""

from __future__ import annotations

from collections.abc import Mapping

import anyio
import pytest

from repertory.actors.vitals import FRESH
from repertory.runtime.opening import open_runtime
from repertory.runtime.runtime import Runtime
from repertory.transports.device import Health
from repertory.transports.memx.features import THROTTLE_K, HardwareInfo, feature_bytes, power_mw, utilisation
from repertory.transports.memx.simulator.heat import Heat
from repertory.transports.memx.simulator.libmemx import SimulatedLibmemx
from repertory.transports.memx.simulator.parameters import SimulatedMx3
from repertory.transports.virtual import VirtualWorld
from tests.integration.support import Machine, image

from .files import Net, dfp

pytestmark = pytest.mark.virtual


def _readings(rt: Runtime) -> Mapping[str, float]:
    return rt.statistics().groups["group 0"].readings


async def test_a_probe_tells_temperature_power_and_utilisation(anyio_backend: object) -> None:
    machine = Machine(SimulatedMx3(chips=2))
    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        health = await rt.probe("group 0")
    assert health.well
    assert health.readings.keys() == {
        "chips",
        "temperature_k",
        "throttling",
        "frequency_mhz",
        "power_mw",
        "utilisation",
    }
    assert health.readings["chips"] == 2
    assert health.readings["frequency_mhz"] == 600
    assert 300 < health.readings["temperature_k"] < THROTTLE_K
    assert health.readings["throttling"] == 0


async def test_a_hot_chip_is_told(anyio_backend: object) -> None:
    machine = Machine(SimulatedMx3())
    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        machine.library.heat(0, 380.0)
        health = await rt.probe("group 0")
    assert health.readings["temperature_k"] == 380
    assert health.readings["throttling"] == 1


async def test_a_silent_admin_channel_is_not_well_and_breaks_nothing(anyio_backend: object) -> None:
    machine = Machine(SimulatedMx3())
    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        model = await rt.load(dfp(Net(outputs=1)))
        await model.infer(image(0))
        machine.library.admin_timeout(0)
        assert await rt.probe("group 0") == Health(well=False, readings={"chips": 4.0})
        await model.infer(image(1), timeout=1)
        assert rt.statistics().groups["group 0"].incarnations == 1


async def test_what_the_card_does_not_tell_is_left_out(anyio_backend: object) -> None:
    machine = Machine(SimulatedMx3(heat=Heat(telemetry=False)))
    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        assert "power_mw" not in (await rt.probe("group 0")).readings


async def test_a_library_without_feature_calls(anyio_backend: object) -> None:
    def old(library: SimulatedLibmemx) -> None:
        library.exports -= {"memx_get_feature"}

    machine = Machine(SimulatedMx3(), prepare=old)
    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        await (await rt.load(dfp(Net(outputs=1)))).infer(image(0))
        assert await rt.probe("group 0") == Health(well=True, readings={"chips": 4.0})
    assert machine.named("memx_get_feature") == []


async def test_statistics_read_what_is_old_for_the_next_time(anyio_backend: object) -> None:
    machine = Machine(SimulatedMx3())
    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        assert _readings(rt) == {}
        await anyio.sleep(0.01)
        before = _readings(rt)["temperature_k"]
        machine.library.heat(0, 400.0)
        await anyio.sleep(FRESH / 2)
        assert _readings(rt)["temperature_k"] == before
        await anyio.sleep(0.01)
        assert _readings(rt)["temperature_k"] == before  # it was fresh enough
        await anyio.sleep(FRESH)
        rt.statistics()
        await anyio.sleep(0.01)
        assert _readings(rt)["temperature_k"] > before + 10


async def test_nobody_asks_and_nothing_is_read(anyio_backend: object) -> None:
    machine = Machine(SimulatedMx3())
    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        await (await rt.load(dfp(Net(outputs=1)))).infer(image(0))
        machine.calls.clear()
        await anyio.sleep(3600)
        assert machine.calls == []


async def test_a_slow_admin_channel_holds_up_no_frame(anyio_backend: object) -> None:
    machine = Machine(SimulatedMx3())
    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        model = await rt.load(dfp(Net(outputs=1)))
        await model.infer(image(0))
        machine.library.admin_timeout(0)
        began = anyio.current_time()
        rt.statistics()
        for number in range(20):
            await model.infer(image(number))
        assert anyio.current_time() - began < 1  # the admin command takes 3


async def test_a_probe_during_a_swap_tells_what_was_read_last(anyio_backend: object) -> None:
    machine = Machine(SimulatedMx3(swap_ms=1000))
    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        model = await rt.load(dfp(Net(outputs=1)))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(model.infer, image(0))
            await anyio.sleep(0.5)
            machine.calls.clear()
            rt.statistics()
            await anyio.sleep(0.1)
            assert _readings(rt) == {"chips": 4.0}
            assert machine.named("memx_get_feature") == []


def test_what_the_numbers_mean() -> None:
    assert [power_mw(value) for value in (0, 1, 16_999, 17_000)] == [None, 1, 16_999, None]
    assert [utilisation(value) for value in (0, 40, 100, 0xFF)] == [0.0, 0.4, 1.0, None]
    assert [feature_bytes(opcode) for opcode in (6, 11, 17, 19, 22, 99)] == [8, 64, 4, 4, 8, 8]
    info = HardwareInfo(generation=4, chips=16, configured=8, groups=2)
    assert HardwareInfo.unpack(info.pack()) == info
    assert info.pack() == 4 | 16 << 16 | 8 << 32 | 2 << 48
