"""A library that hangs, crashes or kills its process, in each state: who notices, and what is left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
import numpy as np
import pytest

from repertory.models.errors import DeviceError, DeviceHung, DeviceLost
from repertory.runtime.model import Model
from repertory.runtime.opening import open_runtime
from repertory.runtime.runtime import Runtime
from repertory.transports.isolation.device import Bounds

from .support import Stub, echo, left, processes, tensor

IN_BIND = ("open", "download", "enable", "disable")
IN_FLIGHT = ("writing", "reading")
STATES = (*IN_BIND, *IN_FLIGHT, "close")
CALLERS = 12
WINDOW = 4  # of a stub

ways = pytest.mark.parametrize(
    ("anyio_backend", "way"),
    [("asyncio", "hang"), ("trio", "crash"), ("asyncio", "kill")],
    indirect=["anyio_backend"],
)


class Outcomes:
    """What became of requests; an answer that is not its request's own fails the test at once."""

    def __init__(self) -> None:
        self.answered = 0
        self.errors: list[DeviceError] = []

    async def ask(self, model: Model, number: int) -> None:
        given = tensor(number)
        try:
            found = await model.infer(given)
        except DeviceError as error:
            self.errors.append(error)
        else:
            assert np.array_equal(found, given)
            self.answered += 1


async def _suffer(runtime: Runtime, stub: Stub, way: str) -> None:
    """Break one group while requests for two models are queued there, and see it serve again."""
    state = stub.__name__
    one, two = [
        await runtime.load(echo(name), name=f"{state}-{name}", groups=[state]) for name in ("one", "two")
    ]
    outcomes = Outcomes()
    await outcomes.ask(one, 0)
    stub.fail(state, way)
    async with anyio.create_task_group() as tasks:
        for number in range(CALLERS):
            tasks.start_soon(outcomes.ask, one, number)
            tasks.start_soon(outcomes.ask, two, CALLERS + number)
    if state == "close":
        await runtime.unload(two.name)
    assert not stub.armed, f"nothing was called in state {state}"
    assert {type(error) for error in outcomes.errors} <= {DeviceHung, DeviceLost}
    assert len(outcomes.errors) <= (WINDOW if state in IN_FLIGHT else 0), outcomes.errors
    await outcomes.ask(one, 99)
    assert outcomes.answered + len(outcomes.errors) == 2 * CALLERS + 2


@ways
async def test_in_each_state(way: str, anyio_backend: object, tmp_path: Path) -> None:
    stubs = [Stub(tmp_path / state) for state in STATES]
    bystander = Stub(tmp_path / "bystander")
    before = left()
    others = Outcomes()
    async with open_runtime([*stubs, bystander]) as runtime:
        other = await runtime.load(echo("other"), groups=["bystander"])
        assert len(processes(bystander.address)) == 1

        async def go_on(*, task_status: anyio.abc.TaskStatus[Callable[[], None]]) -> None:
            with anyio.CancelScope() as scope:
                task_status.started(scope.cancel)
                while True:
                    await others.ask(other, others.answered)

        with anyio.fail_after(100):
            async with anyio.create_task_group() as tasks:
                enough = await tasks.start(go_on)
                async with anyio.create_task_group() as suffering:
                    for stub in stubs:
                        suffering.start_soon(_suffer, runtime, stub, way)
                enough()
        for stub in stubs:  # and once more on the way out
            stub.fail(stub.__name__, way)
        began = anyio.current_time()
    assert anyio.current_time() - began < 8
    assert others.errors == []
    assert others.answered > 100
    for stub in (*stubs, bystander):
        assert processes(stub.address) == []
    assert left() == before


@pytest.mark.parametrize(
    ("anyio_backend", "way", "kind", "text"),
    [
        ("trio", "hang", DeviceHung, r"open: the process of memx://0 has not answered within 0\.7 s"),
        ("asyncio", "crash", DeviceLost, r"the process of memx://0 was killed by SIGSEGV"),
        ("asyncio", "kill", DeviceLost, r"the process of memx://0 was killed by SIGKILL"),
    ],
    indirect=["anyio_backend"],
)
async def test_while_it_loads(
    way: str, kind: type[DeviceError], text: str, anyio_backend: object, tmp_path: Path
) -> None:
    bounds = Bounds(open=0.7) if way == "hang" else Bounds()
    stub = Stub(tmp_path / "stub", bounds=bounds)
    stub.fail("load", way)
    before = left()
    with pytest.raises(kind, match=text):
        async with open_runtime([stub]):
            raise AssertionError
    assert processes(stub.address) == []
    assert left() == before
