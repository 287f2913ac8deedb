"""Opening and closing, configuration files, and forks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import anyio
import numpy as np
import pytest

from repertory.models.errors import (
    ArtifactError,
    ConfigError,
    DeviceBusy,
    DeviceLost,
    QueueFull,
    RepertoryError,
    RuntimeClosed,
)
from repertory.runtime.config import read_config
from repertory.runtime.model import Model
from repertory.runtime.opening import open_runtime
from repertory.transports.device import Completed, Fault
from repertory.transports.memory import InMemoryDevice
from repertory.transports.virtual import VirtualWorld

from .support import SETTLED, Memory, answer, open_virtual, sketched, tensor

pytestmark = pytest.mark.virtual


# -- leaving ---------------------------------------------------------------------------------------


async def test_leaving_twice_is_leaving_once() -> None:
    rt = open_virtual("sim://")
    await rt.__aenter__()
    await rt.__aexit__(None, None, None)
    await rt.__aexit__(None, None, None)
    with pytest.raises(RuntimeClosed):
        await rt.load(sketched("net"))


async def test_a_device_that_is_not_open_yet_holds_up_nobody_who_leaves() -> None:
    class Endless(InMemoryDevice):  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]
        async def open(self, completed: Completed, fault: Fault) -> None:
            await anyio.sleep_forever()

    began = anyio.current_time()
    with anyio.move_on_after(1):
        async with open_virtual(Endless):
            pass
    assert anyio.current_time() - began == pytest.approx(1)


# -- opening ---------------------------------------------------------------------------------------


async def test_runtime_that_was_not_entered_says_how_to() -> None:
    rt = open_virtual("sim://")
    for use in (
        lambda: rt.load(sketched("net")),
        lambda: rt.unload("net"),
        lambda: rt.replace("net", sketched("net")),
        lambda: rt.pin("net"),
        lambda: rt.probe("sim://"),
    ):
        with pytest.raises(RuntimeClosed, match="use `async with open_runtime"):
            await use()


@pytest.mark.parametrize("look", ["model", "statistics", "explain", "events", "timeline"])
def test_look_into_a_runtime_that_was_not_entered(look: str) -> None:
    rt = open_virtual("sim://")
    looks = {
        "model": lambda: rt.model("net"),
        "statistics": rt.statistics,
        "explain": rt.explain,
        "events": rt.events,
        "timeline": rt.timeline,
    }
    with pytest.raises(RuntimeClosed, match="not open"):
        looks[look]()


async def test_runtime_is_entered_once() -> None:
    rt = open_virtual("sim://")
    async with rt:
        with pytest.raises(RuntimeClosed, match="entered once"):
            await rt.__aenter__()
        await rt.load(sketched("net"))
    with pytest.raises(RuntimeClosed):
        await rt.__aenter__()


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("warp://0", "unknown scheme 'warp'"),
        ("no address", "is no device address"),
        ("sim://?speed=11", "speed"),
        ("sim://?window=0", "window"),
        ("sim://?window=many", "window"),
        ("sim://?window=1&window=2", "given twice"),
        ("null://?window=x", "window"),
    ],
)
async def test_wrong_address_is_refused_before_anything_stays_open(address: str, message: str) -> None:
    memory = Memory()

    async def use() -> None:
        async with open_virtual(memory, address):
            pytest.fail("it must not open")

    with pytest.raises(ConfigError, match=message):
        await use()
    assert memory.balanced


async def test_one_device_given_twice_is_refused() -> None:
    async def use() -> None:
        async with open_virtual("sim://", "sim://"):
            pytest.fail("it must not open")

    with pytest.raises(ConfigError, match="sim:// is given twice"):
        await use()


def test_runtime_without_a_device_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one device"):
        open_runtime([])


async def test_device_that_cannot_be_opened_leaves_nothing_behind() -> None:
    first, second, third = Memory("first"), Memory("second"), Memory("third")
    second.open_errors.append(DeviceBusy("owned by process 7", family="memory"))

    async def use() -> None:
        async with open_virtual(first, second, third):
            pytest.fail("it must not open")

    with pytest.raises(DeviceBusy, match="owned by process 7"):
        await use()
    for memory in (first, second, third):
        assert memory.balanced
    opened = [device.opened for memory in (first, second, third) for device in memory.devices]
    await anyio.sleep(100)
    assert opened == [device.opened for memory in (first, second, third) for device in memory.devices]


async def test_cancelled_opening_leaves_nothing_behind() -> None:
    memory = Memory()
    with anyio.CancelScope() as scope:
        scope.cancel()
        async with open_virtual(memory):
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert memory.balanced


async def test_error_of_the_block_is_raised_as_it_is() -> None:
    async def use() -> None:
        async with open_virtual("sim://"):
            raise ValueError("the block's own")

    with pytest.raises(ValueError, match="the block's own"):
        await use()


async def test_cancelled_block_closes_in_order_and_answers_everybody() -> None:
    memory = Memory(window=1, holding=True)
    ends: list[str] = []

    async def ask(number: int) -> None:
        try:
            await models[0].infer(tensor(number))
        except RepertoryError as error:
            ends.append(type(error).__name__)

    models: list[Model] = []
    async with anyio.create_task_group() as callers:
        with anyio.move_on_after(1) as scope:
            async with open_virtual(memory) as rt:
                models.append(await rt.load(sketched("net")))
                for number in range(3):
                    callers.start_soon(ask, number)
                await anyio.sleep_forever()
        assert scope.cancelled_caught
        await anyio.sleep(SETTLED)
        assert len(ends) == 3
        assert ends.count("RuntimeClosed") >= 2
    assert memory.balanced


async def test_idle_runtime_closes_at_once() -> None:
    async with open_virtual("sim://", "null://") as rt:
        await rt.load(sketched("net"), warm=True)
        began = anyio.current_time()
    assert anyio.current_time() - began < 0.1


# -- configuration ---------------------------------------------------------------------------------


def _write(folder: Path, text: str) -> Path:
    (folder / "net.json").write_bytes(sketched("net"))
    path = folder / "board.toml"
    path.write_text(dedent(text))
    return path


async def test_configured_runtime_has_its_models_in_service(tmp_path: Path) -> None:
    path = _write(
        tmp_path,
        """
        [[group]]
        address = "sim://?service_ms=1"
        [[group]]
        address = "null://"
        [[model]]
        path = "net.json"
        name = "camera"
        groups = ["sim://?service_ms=1"]
        queue = 1
        overflow = "refuse"
        timeout = 0.5
        priority = 3
        warm = true
        pin = true
        """,
    )
    async with open_runtime(str(path), world=VirtualWorld()) as rt:
        statistics = rt.statistics()
        assert statistics.models["camera"].groups == ["sim://?service_ms=1"]
        assert statistics.groups["sim://?service_ms=1"].residents == ["net"]
        model = rt.model("camera")
        np.testing.assert_array_equal(await model.infer(tensor(1)), answer("net", 1))
        ends: list[str] = []

        async def ask() -> None:
            try:
                await model.infer(tensor(1))
            except QueueFull:
                ends.append("full")

        async with anyio.create_task_group() as callers:
            for _ in range(9):
                callers.start_soon(ask)
        assert ends


def test_files_of_a_configuration_lie_in_its_folder(tmp_path: Path) -> None:
    text = (
        "[[group]]\naddress = 'sim://'\n[[model]]\npath = 'lib0.out'\ntwin = 'a.onnx'\nsidecar = 'b/c.json'"
        "\noutputs = 'native'"
    )
    path = _write(tmp_path, text)
    (model,) = read_config(path).model
    options = model.options
    files = (model.path, options.twin, options.sidecar)
    assert files == tuple(str(tmp_path / name) for name in ("lib0.out", "a.onnx", "b/c.json"))
    assert options.outputs == "native"
    (bare,) = read_config(_write(tmp_path, text[: text.index("twin")])).model
    assert (bare.options.twin, bare.options.sidecar, bare.options.outputs) == (None, None, "float32")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "group"),
        ("group = []", r"there is no \[\[group\]\]"),
        ("[[group]]\nadress = 'sim://'", "adress"),
        ("[[group]]\naddress = 7", r"group 1: address 7 came, a text is wanted"),
        ("[[group]]\naddress = 'sim://'\n[[model]]\nname = 'net'", "path"),
        ("[[group]]\naddress = 'sim://'\n[[model]]\npath = 'net.json'\nquueue = 3", "quueue"),
        ("[[group]]\naddress = 'sim://'\n[[model]]\npath = 'net.json'\nqueue = 0", r"queue|>= 1"),
        ("[[group]]\naddress = 'sim://'\n[[model]]\npath = 'net.json'\nqueue = 'long'", "queue"),
        ("[[group]]\naddress = 'sim://'\n[[model]]\npath = 'net.json'\noverflow = 'drop'", "drop"),
        ("[[group]]\naddress = 'sim://'\n[[model]]\npath = 'net.json'\ntimeout = 0", "timeout|> 0"),
        ("[[group]]\naddress = 'sim://'\n[[model]]\npath = 'net.json'\npriority = 999", "priority"),
        ("[[group", "board.toml"),
    ],
)
def test_wrong_configuration_names_the_file_and_the_key(tmp_path: Path, text: str, message: str) -> None:
    path = _write(tmp_path, text)
    with pytest.raises(ConfigError, match=message) as caught:
        open_runtime(path)
    assert str(path) in str(caught.value)


def test_configuration_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "board.toml"
    path.write_bytes(b"\xff\xfe[[group]]")
    with pytest.raises(ConfigError, match=r"board\.toml"):
        open_runtime(path)


def test_configuration_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"board\.toml: No such file"):
        open_runtime(tmp_path / "board.toml")


async def test_configured_model_that_cannot_be_loaded_leaves_nothing_open(tmp_path: Path) -> None:
    path = _write(tmp_path, "[[group]]\naddress = 'sim://'\n[[model]]\npath = 'missing.json'")

    async def use() -> None:
        async with open_runtime(path, world=VirtualWorld()):
            pytest.fail("it must not open")

    with pytest.raises(ArtifactError, match=r"missing\.json"):
        await use()


async def test_device_that_goes_away_at_once_after_opening_is_opened_again() -> None:
    memory = Memory()
    async with open_virtual(memory) as rt:
        memory.device.fail(DeviceLost("gone", family="memory"))
        model = await rt.load(sketched("net"))
        with anyio.fail_after(5):
            np.testing.assert_array_equal(await model.infer(tensor(1)), answer("net", 1))
    assert len(memory.devices) == 2, "the one that went away, and another"


# -- forks -----------------------------------------------------------------------------------------

FORKING = "ignore:This process:DeprecationWarning"
"""Newer Pythons warn of forks beside threads; the child here touches none of them."""

FORK = """
import asyncio
import os
import sys

import anyio
import numpy as np

from repertory.models.errors import RuntimeClosed
from repertory.models.sketch import sketch
from repertory.models.spec import TensorSpec
from repertory.runtime.config import read_config
from repertory.runtime.opening import open_runtime

SPEC = TensorSpec("x", (4,), np.dtype(np.float32))


async def child(rt, model):
    for use in (model.infer(np.zeros(4, np.float32)), rt.load(b""), rt.unload("net")):
        try:
            await use
        except RuntimeClosed as error:
            os.write(1, f"{error}\\n".encode())
            continue
        os._exit(1)
    os._exit(0)


async def main(address):
    async with open_runtime([address]) as rt:
        model = await rt.load(sketch("net", [SPEC], [SPEC]), warm=True)
        process = os.fork()
        if process == 0 and sys.argv[1] == "trio":
            await child(rt, model)
        elif process == 0:  # asyncio knows that its loop does not run here
            asyncio.run(child(rt, model))
        _, status = os.waitpid(process, 0)
        await model.infer(np.zeros(4, np.float32))
    print(os.getpid(), "parent goes on", os.waitstatus_to_exitcode(status))


anyio.run(main, sys.argv[2], backend=sys.argv[1])
"""


@pytest.mark.parametrize("address", ["null://", "sim://?swap_ms=0&service_ms=0"])
def test_forked_child_is_told_to_open_its_own(anyio_backend_name: str, address: str) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "error", "-W", FORKING, "-c", FORK, anyio_backend_name, address],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    *refusals, last = run.stdout.splitlines()
    process, _, end = last.partition(" ")
    assert end == "parent goes on 0"
    wanted = f"the runtime was opened in process {process} and does not survive a fork: open one here"
    assert refusals == [wanted] * 3
