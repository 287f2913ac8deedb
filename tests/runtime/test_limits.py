"""Limits of models in service: what they do, how they are changed, and how a file says them."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup

from repertory.actors.limits import Limits, Overflow
from repertory.models.errors import ConfigError, DeadlineExceeded, QueueFull, Superseded, UnknownModel
from repertory.runtime.config import read_config
from repertory.runtime.opening import open_runtime
from repertory.transports.virtual import VirtualWorld

from .support import SETTLED, Memory, Pending, open_virtual, sketched, tensor

pytestmark = pytest.mark.virtual


def _ask(tasks: TaskGroup, model: Any, count: int, **options: Any) -> list[Pending]:
    requests = [Pending(model, number, **options) for number in range(count)]
    for request in requests:
        tasks.start_soon(request)
    return requests


# -- max_in_flight ---------------------------------------------------------------------------------


async def test_frames_in_flight_are_bounded_over_all_groups() -> None:
    groups = [Memory(name, window=1, holding=True) for name in ("first", "second", "third")]
    async with open_virtual(*groups) as rt, anyio.create_task_group() as tasks:
        model = await rt.load(sketched("net"), limits=Limits(max_in_flight=2))
        requests = _ask(tasks, model, 12)
        for completed in range(12):
            await anyio.sleep(0.1)  # a group is left alone for so long at most to find out what a frame takes
            held = [memory for memory in groups if memory.device.held]
            assert len(held) == min(2, 12 - completed), "as many as allowed, wherever one was completed"
            held[completed % len(held)].device.release(1)
        await anyio.sleep(SETTLED)
        assert all(request.answered_by("net") for request in requests)
        assert sum(bool(memory.ran) for memory in groups) >= 2


async def test_completion_on_one_group_lets_another_start() -> None:
    first, second = Memory("first", holding=True), Memory("second", holding=True)
    async with open_virtual(first, second) as rt, anyio.create_task_group() as tasks:
        model = await rt.load(sketched("net"), limits=Limits(max_in_flight=1))
        _ask(tasks, model, 1)
        await anyio.sleep(SETTLED)
        taker, free = (first, second) if first.device.held else (second, first)
        other = await rt.load(sketched("other"), groups=[taker.__name__])
        _ask(tasks, other, 1)
        waiting = _ask(tasks, model, 1)
        await anyio.sleep(SETTLED)
        assert not free.device.held
        taker.device.release(1)
        await anyio.sleep(SETTLED)
        assert [memory.device.held[0].network.name for memory in (taker, free)] == ["other", "net"]
        taker.let_go()
        free.let_go()
        await anyio.sleep(SETTLED)
        assert waiting[0].answered_by("net")
        assert rt.statistics().models["other"].answered == 1


async def test_a_model_that_flies_all_it_may_elsewhere_holds_up_no_other() -> None:
    first, second = Memory("first", holding=True), Memory("second", holding=True)
    async with open_virtual(first, second) as rt, anyio.create_task_group() as tasks:
        bounded = await rt.load(sketched("bounded"), limits=Limits(max_in_flight=1))
        _ask(tasks, bounded, 5)
        await anyio.sleep(SETTLED)
        assert len(first.device.held) + len(second.device.held) == 1
        other = await rt.load(sketched("other"))
        _ask(tasks, other, 2)
        await anyio.sleep(SETTLED)
        assert len(first.device.held) + len(second.device.held) == 3
        for memory in (first, second):
            memory.let_go()


async def test_cancelled_frame_counts_until_its_completion() -> None:
    memory = Memory(holding=True)
    async with open_virtual(memory) as rt, anyio.create_task_group() as tasks:
        model = await rt.load(sketched("net"), limits=Limits(max_in_flight=1))
        (gone,) = _ask(tasks, model, 1)
        await anyio.sleep(SETTLED)
        (waiting,) = _ask(tasks, model, 1)
        await anyio.sleep(SETTLED)
        gone.scope.cancel()
        await anyio.sleep(SETTLED)
        statistics = rt.statistics().models["net"]
        assert (statistics.cancelled, statistics.in_flight, statistics.waiting) == (1, 0, 1)
        assert len(memory.ran) == 1
        memory.let_go()
        await anyio.sleep(SETTLED)
        assert waiting.answered_by("net")


async def test_frames_that_were_not_run_leave_their_place_in_flight() -> None:
    memory = Memory(holding=True)
    async with open_virtual(memory) as rt, anyio.create_task_group() as tasks:
        model = await rt.load(sketched("net"), limits=Limits(max_in_flight=2))
        requests = _ask(tasks, model, 4)
        await anyio.sleep(SETTLED)
        memory.undo()
        await anyio.sleep(SETTLED)
        assert len(memory.device.held) == 2
        memory.let_go()
        await anyio.sleep(SETTLED)
        assert all(request.answered_by("net") for request in requests)


# -- all together ----------------------------------------------------------------------------------


async def test_what_waits_in_all_models_is_bounded() -> None:
    memory = Memory(window=1, holding=True)
    async with open_virtual(memory, queue=4) as rt, anyio.create_task_group() as tasks:
        refusing = await rt.load(sketched("refusing"))
        latest = await rt.load(sketched("latest"), limits=Limits(overflow=Overflow.DROP_OLDEST))
        patient = await rt.load(sketched("patient"), limits=Limits(overflow=Overflow.WAIT))
        (started,) = _ask(tasks, refusing, 1)
        await anyio.sleep(SETTLED)
        old = _ask(tasks, latest, 2)
        await anyio.sleep(SETTLED)
        refused = _ask(tasks, refusing, 3)
        await anyio.sleep(SETTLED)
        newest = _ask(tasks, latest, 1)
        queueing = _ask(tasks, patient, 2)
        await anyio.sleep(SETTLED)
        models = rt.statistics().models
        assert sum(model.waiting for model in models.values()) == 4
        assert (models["patient"].queueing, models["patient"].offered) == (2, 2)
        assert [type(request.error) for request in refused].count(QueueFull) == 1
        assert [type(request.error) for request in old].count(Superseded) == 1
        memory.let_go()
        await anyio.sleep(1)
        assert started.answered_by("refusing")
        assert newest[0].answered_by("latest")
        assert all(request.answered_by("patient") for request in queueing)


async def test_model_of_which_no_request_could_wait_is_refused_at_its_load() -> None:
    async with open_virtual("sim://", queue_bytes=15) as rt:
        with pytest.raises(ConfigError, match=r"queue_bytes 15 of the runtime .* has 16 bytes"):
            await rt.load(sketched("net"))
        assert rt.models() == []
    async with open_virtual("sim://") as rt:
        with pytest.raises(ConfigError, match="net: queue_bytes 15 came, and one request has 16 bytes"):
            await rt.load(sketched("net"), limits=Limits(queue_bytes=15))
        await rt.load(sketched("net"), limits=Limits(queue_bytes=16))
        with pytest.raises(ConfigError, match="queue_bytes 15 came"):
            await rt.retune("net", queue_bytes=15, weight=3)
        assert (await rt.model("net").infer(tensor(1))).shape == (16,)


# -- changes ---------------------------------------------------------------------------------------


async def test_limits_change_in_service() -> None:
    memory = Memory(window=8, holding=True)
    async with open_virtual(memory) as rt, anyio.create_task_group() as tasks:
        model = await rt.load(sketched("net"), limits=Limits(queue=2, max_in_flight=1), timeout=50)
        _ask(tasks, model, 1)
        await anyio.sleep(SETTLED)
        requests = _ask(tasks, model, 3)
        await anyio.sleep(SETTLED)
        assert [type(request.error) for request in requests].count(QueueFull) == 1
        await rt.retune("net", max_in_flight=None)
        await anyio.sleep(SETTLED)
        assert len(memory.device.held) == 3, "what waited goes at once"
        await rt.retune("net", max_in_flight=1, queue=9)
        more = _ask(tasks, model, 9)
        await anyio.sleep(SETTLED)
        assert len(memory.device.held) == 3
        assert rt.statistics().models["net"].waiting == 9
        await rt.retune("net", timeout=0.5, priority=3, weight=2, max_wait=0.25)
        (brief,) = _ask(tasks, await rt.load(sketched("other")), 1)
        with pytest.raises(QueueFull):
            await model.infer(tensor(1))
        memory.let_go()
        await anyio.sleep(SETTLED)
        assert all(request.answered_by("net") for request in more)
        assert brief.answered_by("other")
        memory.holding = memory.device.holding = True
        began = anyio.current_time()
        with pytest.raises(DeadlineExceeded):
            await model.infer(tensor(1))
        assert anyio.current_time() - began == pytest.approx(0.5, abs=0.01)
        assert memory.ran[-1].priority == 3
        memory.let_go()


async def test_changes_at_the_same_time_do_not_undo_each_other() -> None:
    memory = Memory(window=1, holding=True)
    async with open_virtual(memory) as rt, anyio.create_task_group() as tasks:
        model = await rt.load(sketched("net"))
        _ask(tasks, model, 1)
        await anyio.sleep(SETTLED)
        async with anyio.create_task_group() as changing:
            changing.start_soon(lambda: rt.retune("net", queue=1))
            changing.start_soon(lambda: rt.retune("net", timeout=0.5))
        first, second = _ask(tasks, model, 2)
        await anyio.sleep(1)
        assert {type(first.error), type(second.error)} == {QueueFull, DeadlineExceeded}
        memory.let_go()


async def test_wrong_changes_change_nothing() -> None:
    async with open_virtual("sim://") as rt:
        await rt.load(sketched("net"))
        wrong: list[dict[str, Any]] = [{"weight": 0}, {"quueue": 1}, {"queue": 3, "timeout": float("nan")}]
        for changes in wrong:
            with pytest.raises(ConfigError, match=list(changes)[-1]):
                await rt.retune("net", **changes)
        with pytest.raises(ConfigError, match="a Limits is wanted"):
            await rt.retune("net", {"queue": 1})  # type: ignore[arg-type]
        with pytest.raises(UnknownModel):
            await rt.retune("ten", queue=1)
        await rt.model("net").infer(tensor(1))


async def test_arguments_that_contradict_the_limits_are_refused() -> None:
    async with open_virtual("sim://") as rt:
        with pytest.raises(ConfigError, match=r"timeout 2.0 and limits with timeout 1.0 contradict"):
            await rt.load(sketched("net"), limits=Limits(timeout=1), timeout=2)
        with pytest.raises(ConfigError, match="priority 0 and limits with priority 5 contradict"):
            await rt.load(sketched("net"), limits=Limits(priority=5), priority=0)
        await rt.load(sketched("net"), limits=Limits(timeout=1, queue=3), timeout=1, priority=2)


# -- files -----------------------------------------------------------------------------------------

FILE = """
policy = "rotation"
queue = 3
queue_bytes = 1000
[[group]]
address = "sim://"
[[model]]
path = "net.json"
queue = 7
queue_bytes = 4096
overflow = "drop_oldest"
max_in_flight = 2
weight = 2
priority = 5
timeout = 0.5
max_wait = 0.2
"""


def _written(folder: Path, text: str) -> Path:
    (folder / "net.json").write_bytes(sketched("net"))
    path = folder / "board.toml"
    path.write_text(dedent(text))
    return path


async def test_file_says_all_limits(tmp_path: Path) -> None:
    config = read_config(_written(tmp_path, FILE))
    assert config.model[0].options.limits == Limits(7, 4096, Overflow.DROP_OLDEST, 2, 2.0, 5, 0.5, 0.2)
    assert (config.policy, config.queue, config.queue_bytes) == ("rotation", 3, 1000)
    async with open_runtime(tmp_path / "board.toml", world=VirtualWorld()) as rt:
        await rt.model("net").infer(tensor(1))
        assert {decided.reason for decided in rt.explain()} & {"nobody else waits", "nothing waits"}


def test_file_without_limits_has_the_defaults(tmp_path: Path) -> None:
    text = "[[group]]\naddress = 'sim://'\n[[model]]\npath = 'net.json'"
    assert read_config(_written(tmp_path, text)).model[0].options.limits == Limits()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("weight = nan", r"model 1 \(net.json\): weight nan came"),
        ("weight = 0", "weight 0.* came"),
        ("max_wait = inf", "max_wait inf came"),
        ("max_in_flight = 0", "max_in_flight 0 came"),
        ("max_in_flight = true", "max_in_flight"),
        ("weight = 'heavy'", "weight"),
        ("timeout = -1", "timeout -1.* came"),
        ("priority = 128", "priority 128 came"),
    ],
)
def test_wrong_limits_of_a_file_name_the_file_and_the_model(tmp_path: Path, line: str, message: str) -> None:
    text = f"[[group]]\naddress = 'sim://'\n[[model]]\npath = 'net.json'\n{line}"
    with pytest.raises(ConfigError, match=message) as caught:
        open_runtime(_written(tmp_path, text))
    assert "board.toml" in str(caught.value)


@pytest.mark.parametrize("line", ["queue = 0", "queue_bytes = 0", "queue = true", "policy = 'fifth'"])
def test_wrong_options_of_a_whole_file(tmp_path: Path, line: str) -> None:
    with pytest.raises(ConfigError, match=line.split(maxsplit=1)[0]) as caught:
        open_runtime(_written(tmp_path, f"{line}\n[[group]]\naddress = 'sim://'"))
    assert "board.toml" in str(caught.value)


async def test_policy_by_name_and_wrong_options() -> None:
    async with open_virtual("sim://", policy="rotation") as rt:
        await (await rt.load(sketched("net"))).infer(tensor(1))
        assert rt.explain()
    wrong: list[dict[str, Any]] = [{"policy": 7}, {"policy": "seventh"}, {"queue": 0}, {"queue_bytes": 1.5}]
    for options in wrong:
        with pytest.raises(ConfigError, match=next(iter(options))):
            open_virtual("sim://", **options)
