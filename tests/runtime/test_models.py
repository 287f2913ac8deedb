"""Loading, exchanging and unloading models in service."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import numpy as np
import pytest
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from repertory.models.errors import (
    ArtifactError,
    ConfigError,
    ModelClosed,
    NameTaken,
    RuntimeClosed,
    UnknownModel,
)
from repertory.models.spec import TensorSpec
from repertory.runtime.runtime import Runtime

from .support import (
    SETTLED,
    Memory,
    Pending,
    answer,
    lost,
    open_virtual,
    outstanding,
    reconciles,
    sketched,
    tensor,
)

pytestmark = pytest.mark.virtual


@pytest.fixture
async def tasks() -> AsyncGenerator[TaskGroup, None]:
    async with anyio.create_task_group() as group:
        yield group


async def _serves(rt: Runtime, name: str, network: str | None = None) -> bool:
    return np.array_equal(await rt.model(name).infer(tensor(1)), answer(network or name, 1))


# -- names -----------------------------------------------------------------------------------------


async def test_model_is_found_by_its_name() -> None:
    async with open_virtual("sim://") as rt:
        model = await rt.load(sketched("net"))
        assert (model.name, repr(model)) == ("net", "<Model net>")
        assert rt.model("net") is model
        other = await rt.load(sketched("net"), name="other")
        assert rt.model("other") is other
        assert await _serves(rt, "other", "net")


async def test_unknown_model_is_named_with_those_that_there_are() -> None:
    async with open_virtual("sim://") as rt:
        await rt.load(sketched("net"))
        with pytest.raises(UnknownModel, match=r"no model 'nett' is loaded; there are \['net'\]"):
            rt.model("nett")
        for use in (rt.unload, rt.pin):
            with pytest.raises(UnknownModel):
                await use("nett")
        with pytest.raises(UnknownModel):
            await rt.replace("nett", sketched("net"))


@pytest.mark.parametrize("name", [None, "net"])
async def test_second_model_of_a_name_is_refused_and_the_first_stays(name: str | None) -> None:
    async with open_virtual("sim://") as rt:
        await rt.load(sketched("net"))
        with pytest.raises(NameTaken, match="a model 'net' is loaded"):
            await rt.load(sketched("net"), name=name)
        assert await _serves(rt, "net")


@pytest.mark.parametrize("name", [None, "net"])
async def test_of_two_loads_of_one_name_at_once_one_succeeds(name: str | None) -> None:
    async with open_virtual("sim://") as rt:
        ends: list[str] = []

        async def load() -> None:
            try:
                await rt.load(sketched("net"), name=name, warm=True)
            except NameTaken:
                ends.append("taken")
            else:
                ends.append("loaded")

        async with anyio.create_task_group() as loads:
            for _ in range(3):
                loads.start_soon(load)
        assert sorted(ends) == ["loaded", "taken", "taken"]
        assert await _serves(rt, "net")


# -- what is no model ------------------------------------------------------------------------------


async def test_file_that_is_no_model_is_refused_and_its_name_is_free_again(tmp_path: Path) -> None:
    async with open_virtual("sim://") as rt:
        with pytest.raises(ArtifactError, match="sketch"):
            await rt.load(b"not a model", name="net")
        with pytest.raises(ArtifactError, match=r"missing.*No such file"):
            await rt.load(tmp_path / "missing", name="net")
        with pytest.raises(UnknownModel, match="holds 'net', not 'other'"):
            await rt.load(sketched("net"), name="net", network="other")
        with pytest.raises(ConfigError, match="no group 'nowhere'"):
            await rt.load(sketched("net"), name="net", groups=["nowhere"])
        assert rt.statistics().models == {}
        file = tmp_path / "net.json"
        file.write_bytes(sketched("net"))
        await rt.load(str(file))
        assert await _serves(rt, "net")


async def test_refusals_of_several_groups_are_told_together() -> None:
    async with open_virtual("sim://", "null://") as rt:
        with pytest.raises(ArtifactError, match="<bytes>: sketch"):
            await rt.load(b"not a model")


async def test_cancelled_load_leaves_no_name_behind() -> None:
    memory = Memory()
    memory.bind_seconds = 1.0
    async with open_virtual(memory) as rt:
        with anyio.move_on_after(0.5) as scope:
            await rt.load(sketched("net"), warm=True)
        assert scope.cancelled_caught
        assert rt.statistics().models == {}
        await rt.load(sketched("net"))
        assert await _serves(rt, "net")


# -- groups ----------------------------------------------------------------------------------------


async def test_model_runs_only_on_the_groups_it_is_given(tasks: TaskGroup) -> None:
    left, right = Memory("left"), Memory("right")
    async with open_virtual(left, right) as rt:
        await rt.load(sketched("net"), groups=["right"])
        assert rt.statistics().models["net"].groups == ["right"]
        assert await _serves(rt, "net")
    assert (len(left.ran), len(right.ran)) == (0, 1)


async def test_two_groups_share_the_work_of_one_model(tasks: TaskGroup) -> None:
    async with open_virtual("sim://?service_ms=10&window=1", "sim://second?service_ms=10&window=1") as rt:
        model = await rt.load(sketched("net"), warm=True)
        began = anyio.current_time()
        async with anyio.create_task_group() as callers:
            for number in range(20):
                callers.start_soon(model.infer, tensor(number))
        assert anyio.current_time() - began < 0.15
        assert all(group.completed >= 8 for group in rt.statistics().groups.values())


async def test_programs_of_several_residents_are_never_evicted_under_their_frames() -> None:
    async with open_virtual("sim://?residents=2&window=3&service_ms=5") as rt:
        models = [await rt.load(sketched(name)) for name in "abc"]
        requests = [Pending(models[number % 3], number) for number in range(300)]
        async with anyio.create_task_group() as callers:
            for request in requests:
                callers.start_soon(request)
        assert all(request.answered_by("abc"[number % 3]) for number, request in enumerate(requests))
        assert rt.statistics().groups["sim://?residents=2&window=3&service_ms=5"].incarnations == 1


async def test_bind_waits_for_the_frames_of_what_it_evicts() -> None:
    address = "sim://?residents=2&service_ms=50&swap_ms=1"
    async with open_virtual(address) as rt:
        models = [await rt.load(sketched(name)) for name in "abc"]
        async with anyio.create_task_group() as callers:
            for model in models:
                callers.start_soon(model.infer, tensor(1))
        assert rt.statistics().groups[address].incarnations == 1


async def test_two_models_of_one_program_share_its_window() -> None:
    async with open_virtual("sim://?residents=2&window=2&service_ms=5") as rt:
        models = [await rt.load(sketched("net"), name=name) for name in "ab"]
        requests = [Pending(models[number % 2], number) for number in range(200)]
        async with anyio.create_task_group() as callers:
            for request in requests:
                callers.start_soon(request)
        assert all(request.answered_by("net") for request in requests)
        (group,) = rt.statistics().groups.values()
        assert (group.swaps, group.incarnations) == (1, 1)


async def test_two_models_under_load_both_get_on_with_few_swaps() -> None:
    async with open_virtual("sim://?swap_ms=10&service_ms=1") as rt:
        models = [await rt.load(sketched(name)) for name in "ab"]
        async with anyio.create_task_group() as callers:
            for number in range(600):
                callers.start_soon(models[number % 2].infer, tensor(number))
        assert anyio.current_time() < 2
        assert rt.statistics().groups["sim://?swap_ms=10&service_ms=1"].swaps <= 12


# -- unload ----------------------------------------------------------------------------------------


async def test_unload_answers_what_was_admitted_and_refuses_what_comes_later(tasks: TaskGroup) -> None:
    memory = Memory(window=1, holding=True)
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"))
        requests = [Pending(model, number) for number in range(3)]
        for request in requests:
            tasks.start_soon(request)
        await anyio.sleep(SETTLED)
        tasks.start_soon(rt.unload, "net")
        await anyio.sleep(SETTLED)
        with pytest.raises(ModelClosed, match="net is unloaded"):
            await model.infer(tensor(9))
        with pytest.raises(NameTaken):
            await rt.load(sketched("net"))
        memory.let_go()
        await anyio.sleep(SETTLED)
        assert all(request.answered_by("net") for request in requests)
        assert rt.statistics().models == {}
        assert rt.statistics().groups["memory"].residents == []
        with pytest.raises(ModelClosed):
            await model.infer(tensor(9))
        await rt.load(sketched("net"))
        assert await _serves(rt, "net")


async def test_program_that_another_model_uses_stays_resident() -> None:
    memory = Memory()
    async with open_virtual(memory) as rt:
        await rt.load(sketched("net"), name="one", warm=True)
        await rt.load(sketched("net"), name="two")
        await rt.unload("one")
        assert rt.statistics().groups["memory"].residents == ["net"]
        assert await _serves(rt, "two", "net")
    assert memory.device.binds == ["net"]


async def test_program_that_is_loaded_again_before_its_eviction_stays_resident(tasks: TaskGroup) -> None:
    memory = Memory(residents=2)
    async with open_virtual(memory) as rt:
        await rt.load(sketched("net"), warm=True)
        busy = await rt.load(sketched("busy"), warm=True)
        memory.device.holding = True
        tasks.start_soon(busy.infer, tensor(1))
        await anyio.sleep(SETTLED)
        tasks.start_soon(rt.unload, "net")
        await anyio.sleep(SETTLED)
        await rt.load(sketched("net"), name="again")
        memory.let_go()
        await anyio.sleep(SETTLED)
        assert await _serves(rt, "again", "net")
    assert memory.device.binds == ["net", "busy"]


async def test_two_unloads_at_once(tasks: TaskGroup) -> None:
    memory = Memory(holding=True)
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"))
        tasks.start_soon(model.infer, tensor(1))
        await anyio.sleep(SETTLED)
        ends: list[str] = []

        async def unload() -> None:
            try:
                await rt.unload("net")
            except UnknownModel:
                ends.append("unknown")
            else:
                ends.append("unloaded")

        async with anyio.create_task_group() as unloads:
            for _ in range(2):
                unloads.start_soon(unload)
            await anyio.sleep(SETTLED)
            memory.let_go()
        assert "unloaded" in ends
        assert rt.statistics().models == {}
        await rt.load(sketched("net"))


async def test_cancelled_unload_can_be_asked_again(tasks: TaskGroup) -> None:
    memory = Memory(holding=True)
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"))
        request = Pending(model, 1)
        tasks.start_soon(request)
        await anyio.sleep(SETTLED)
        with anyio.move_on_after(1) as scope:
            await rt.unload("net")
        assert scope.cancelled_caught
        with pytest.raises(ModelClosed):
            await model.infer(tensor(2))
        memory.let_go()
        await rt.unload("net")
        assert request.answered_by("net")
        await rt.load(sketched("net"))


async def test_model_that_waits_for_a_device_that_is_away_can_be_unloaded(tasks: TaskGroup) -> None:
    memory = Memory()
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"), warm=True)
        memory.device.fail(lost())
        await anyio.sleep(SETTLED)
        request = Pending(model, 1)
        tasks.start_soon(request)
        await anyio.sleep(0.001)
        with anyio.fail_after(10):
            await rt.unload("net")
        await anyio.sleep(SETTLED)
        assert request.answered_by("net")


# -- replace ---------------------------------------------------------------------------------------


async def test_replacement_under_load_drops_nothing_and_mixes_nothing(tasks: TaskGroup) -> None:
    async with open_virtual("sim://?service_ms=2&window=3&swap_ms=20") as rt:
        model = await rt.load(sketched("v1"), name="net")
        requests = [Pending(model, number) for number in range(60)]
        async with anyio.create_task_group() as callers:
            for request in requests[:40]:
                callers.start_soon(request)
            await anyio.sleep(0.03)
            await rt.replace("net", sketched("v2"))
            for request in requests[40:]:
                callers.start_soon(request)
        by_old = [request.answered_by("v1") for request in requests]
        by_new = [request.answered_by("v2") for request in requests]
        assert [old != new for old, new in zip(by_old, by_new, strict=True)] == [True] * 60
        assert 0 < sum(by_old) < 40
        assert all(by_new[40:])
        assert rt.statistics().groups["sim://?service_ms=2&window=3&swap_ms=20"].residents == ["v2"]
        assert reconciles(rt.statistics().models["net"])


async def test_replacement_by_the_same_file_swaps_nothing() -> None:
    memory = Memory()
    async with open_virtual(memory) as rt:
        await rt.load(sketched("net"), warm=True)
        await rt.replace("net", sketched("net"))
        assert await _serves(rt, "net")
    assert memory.device.binds == ["net"]


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (sketched("v2", inputs=(TensorSpec("x", (5,), np.dtype(np.float32)),)), "its ports differ"),
        (b"not a model", "sketch"),
    ],
)
async def test_refused_replacement_changes_nothing(file: bytes, message: str) -> None:
    memory = Memory()
    async with open_virtual(memory) as rt:
        await rt.load(sketched("net"), warm=True)
        with pytest.raises(ArtifactError, match=message):
            await rt.replace("net", file)
        assert await _serves(rt, "net")
    assert memory.device.binds == ["net"]


@pytest.mark.parametrize("devices", [1, 2])
async def test_replacement_that_an_unload_overtakes_ends_in_an_error_of_ours(devices: int) -> None:
    async with open_virtual(*(f"sim://{number}" for number in range(devices))) as rt:
        for steps in range(25):
            await rt.load(sketched("net"), warm=True)
            async with anyio.create_task_group() as orders:

                async def replace() -> None:
                    with contextlib.suppress(UnknownModel, ModelClosed):
                        await rt.replace("net", sketched("v2"))

                orders.start_soon(replace)
                for _ in range(steps):
                    await checkpoint()
                await rt.unload("net")
            assert rt.statistics().models == {}
            assert not any(group.residents for group in rt.statistics().groups.values())


async def test_what_comes_along_with_a_file_reaches_the_device(tmp_path: Path) -> None:
    sidecar = tmp_path / "net.json"
    sidecar.write_bytes(b"from a path")
    memory = Memory()
    async with open_virtual(memory) as rt:
        await rt.load(sketched("net"), twin=b"twin", sidecar=str(sidecar))
        await rt.replace("net", sketched("net"), sidecar=b"bytes", outputs="native")
        await rt.replace("net", sketched("net"))
        with pytest.raises(ArtifactError, match=r"none\.json: No such file"):
            await rt.replace("net", sketched("net"), sidecar=tmp_path / "none.json")
    assert [(file.twin, file.sidecar, file.native_outputs) for file in memory.files] == [
        (b"twin", b"from a path", False),
        (None, b"bytes", True),
        (None, None, False),
    ]


async def test_outputs_come_as_float32_or_native_and_in_no_other_way() -> None:
    memory = Memory()
    async with open_virtual(memory) as rt:
        await rt.load(sketched("net"), outputs="native")
        for wrong in ("int8", None, ["native"]):
            with pytest.raises(ConfigError, match="one of float32, native is wanted"):
                await rt.load(sketched("net"), name="other", outputs=wrong)  # type: ignore[arg-type]
            with pytest.raises(ConfigError, match="one of float32, native is wanted"):
                await rt.replace("net", sketched("net"), outputs=wrong)  # type: ignore[arg-type]
    assert [file.native_outputs for file in memory.files] == [True]


async def test_pin_goes_over_to_the_replacement() -> None:
    memory = Memory(residents=2)
    async with open_virtual(memory) as rt:
        await rt.load(sketched("v1"), name="net", pin=True)
        await rt.replace("net", sketched("v2"))
        assert await _serves(rt, "net", "v2")
        for name in "abc":
            await rt.load(sketched(name), warm=True)
        assert "v2" in rt.statistics().groups["memory"].residents


# -- pin and warm ----------------------------------------------------------------------------------


async def test_warm_model_is_resident_before_its_first_request() -> None:
    memory = Memory()
    async with open_virtual(memory) as rt:
        await rt.load(sketched("net"), warm=True)
        assert memory.device.binds == ["net"]
        assert rt.statistics().models["net"].answered == 1


async def test_pin_of_an_idle_group_takes_no_request_to_happen() -> None:
    memory = Memory()
    async with open_virtual(memory) as rt:
        await rt.load(sketched("net"))
        with anyio.fail_after(1):
            await rt.pin("net")
        assert memory.device.binds == ["net"]
        await rt.pin("net")


async def test_pinned_model_stays_resident_until_it_is_unloaded() -> None:
    memory = Memory(residents=2)
    async with open_virtual(memory) as rt:
        await rt.load(sketched("pinned"), pin=True)
        for name in "abc":
            await rt.load(sketched(name))
        for name in "abcabc":
            assert await _serves(rt, name)
        assert memory.device.binds.count("pinned") == 1
        assert "pinned" in rt.statistics().groups["memory"].residents
        await rt.unload("pinned")
        del memory.device.binds[:]
        for name in "abab":
            assert await _serves(rt, name)
        assert len(memory.device.binds) <= 2, "its place is free for the others"


async def test_pin_that_leaves_another_model_no_place_is_refused() -> None:
    async with open_virtual("sim://") as rt:
        await rt.load(sketched("a"))
        await rt.load(sketched("b"))
        with pytest.raises(ConfigError, match="a cannot be pinned"):
            await rt.pin("a")
        assert await _serves(rt, "b")


async def test_model_loaded_beside_a_pinned_one_that_leaves_no_place(tasks: TaskGroup) -> None:
    """Either its load is refused, or both are served; but neither waits for ever."""
    async with open_virtual("sim://") as rt:
        pinned = await rt.load(sketched("pinned"), pin=True)
        requests: list[Pending] = []
        try:
            late = await rt.load(sketched("late"))
        except ConfigError:
            pass
        else:
            requests.append(Pending(late, 1))
        requests += [Pending(pinned, number) for number in range(100)]
        with anyio.move_on_after(60):
            async with anyio.create_task_group() as callers:
                for request in requests:
                    callers.start_soon(request)
        assert all(request.ended is not None for request in requests)
        assert all(request.value is not None for request in requests)


# -- the end ---------------------------------------------------------------------------------------


async def test_use_after_close() -> None:
    async with open_virtual("sim://") as rt:
        model = await rt.load(sketched("net"))
    for use in (
        lambda: model.infer(tensor(1)),
        lambda: rt.load(sketched("late")),
        lambda: rt.unload("net"),
        lambda: rt.pin("net"),
        lambda: rt.replace("net", sketched("v2")),
        lambda: rt.probe("sim://"),
    ):
        with pytest.raises(RuntimeClosed, match="the runtime is closed"):
            await use()
    with pytest.raises(RuntimeClosed):
        rt.model("net")


async def test_last_look_at_a_closed_runtime() -> None:
    async with open_virtual("sim://") as rt:
        model = await rt.load(sketched("net"))
        await model.infer(tensor(1))
    statistics = rt.statistics()
    assert statistics.models["net"].answered == 1
    assert outstanding(statistics.models["net"]) == 0
    assert not statistics.groups["sim://"].residents
    assert rt.explain()
    with anyio.fail_after(1):
        assert [event async for event in rt.events()] == []


async def test_load_that_the_close_overtakes(tasks: TaskGroup) -> None:
    memory = Memory()
    memory.bind_seconds = 1.0
    ends: list[type[BaseException] | None] = []
    async with open_virtual(memory) as rt:

        async def load(warm: bool) -> None:
            try:
                await rt.load(sketched("net"), name=f"warm {warm}", warm=warm)
            except Exception as error:  # noqa: BLE001  (looked at below)
                ends.append(type(error))
            else:
                ends.append(None)

        tasks.start_soon(load, True)
        await anyio.sleep(SETTLED)
        tasks.start_soon(load, False)
    await anyio.sleep(SETTLED)
    assert len(ends) == 2
    assert set(ends) <= {RuntimeClosed, None}


async def test_warming_up_knows_no_timeout_of_requests() -> None:
    async with open_virtual("sim://?swap_ms=600") as rt:
        await rt.load(sketched("net"), warm=True, timeout=0.5)
        assert rt.statistics().models["net"].answered == 1
