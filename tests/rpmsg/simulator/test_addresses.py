"""`sim+c7x://`: which DSP an address is, and that it outlives the devices that open it."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import numpy as np
import pytest

from repertory.models.errors import ConfigError, RepertoryError
from repertory.models.program import Artifact
from repertory.transports.address import Address
from repertory.transports.device import Completion
from repertory.transports.frame import Frame
from repertory.transports.real import RealWorld
from repertory.transports.rpmsg.simulated import machine, simulated, simulated_dsp
from repertory.transports.virtual import VirtualWorld
from repertory.transports.world import World

from .modules import double

X = np.array([[1, 2, 3, 4]], np.float32)


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("", "7e000000.dsp"),
        ("0", "7e000000.dsp"),
        ("1", "7e200000.dsp"),
        ("7e000000.dsp", "7e000000.dsp"),
        ("7e200000.dsp", "7e200000.dsp"),
    ],
)
@pytest.mark.virtual
async def test_names(target: str, name: str) -> None:
    async with VirtualWorld() as world:
        assert simulated_dsp(Address.parse(f"sim+c7x://{target}"), world).name == name


@pytest.mark.parametrize("target", ["2", "00", "7e000000", "x", "-1", "0/"])
def test_no_such_dsp(target: str) -> None:
    with pytest.raises(ConfigError, match="no DSP"):
        machine(Address.parse(f"sim+c7x://{target}"))


@pytest.mark.parametrize(
    "query", ["wire=4", "latency_ms=-1", "load_mbs=0", "answers=x", "heap_mb=-1", "unknown=1", "isolation=x"]
)
def test_bad_parameters(query: str) -> None:
    with pytest.raises(ConfigError, match=query.partition("=")[0]):
        machine(Address.parse(f"sim+c7x://?{query}"))


def test_parameters() -> None:
    told = machine(
        Address.parse(
            "sim+c7x://?wire=3&latency_ms=2.5&load_ms=1&load_mbs=7&tsc_mhz=800&answers=hash&coherent=false"
            "&first_fit=false&heap_mb=64&run_bound=3&load_bound=4&isolation=process"
        )
    )
    assert (told.wire, told.latency_ms, told.load_ms, told.load_mbs, told.tsc_mhz) == (3, 2.5, 1, 7, 800)
    assert (told.answers, told.coherent, told.first_fit, told.heap_mb) == ("hash", False, False, 64)


class Owner:
    """Owns one frame, and notes its end."""

    def __init__(self) -> None:
        self.ends: list[Completion] = []
        self.faults: list[RepertoryError] = []
        self.done = anyio.Event()

    def settled(self, frame: Frame, /) -> None: ...

    def expire(self, frame: Frame, /) -> None: ...

    def completed(self, batch: Sequence[Completion]) -> None:
        self.ends.extend(batch)
        self.done.set()


async def served(address: str, world: World, *, times: int) -> None:
    """Open, bind, infer and close: each incarnation finds the DSP as the one before has left it."""
    connect = simulated(Address.parse(address), world)
    for _ in range(times):
        device, owner = connect(), Owner()
        await device.open(owner.completed, owner.faults.append)
        program = device.prepare(Artifact.read(double()))
        assert await device.bind(program) is not None
        device.start(Frame(owner, program.networks[0], (X,), program=program))
        await owner.done.wait()
        assert [output.tolist() for output in owner.ends[0].outputs] == [[[2, 4, 6, 8]]]
        await device.close(bound=5)
        assert owner.faults == []


@pytest.mark.virtual
@pytest.mark.parametrize("query", ["wire=2", "wire=3", "wire=2&first_fit=false"])
async def test_a_device_in_virtual_time(query: str) -> None:
    async with VirtualWorld() as world:
        await served(f"sim+c7x://?{query}&coherent=false", world, times=2)


async def test_a_device_in_real_time() -> None:
    async with RealWorld() as world:
        await served("sim+c7x://?load_ms=0", world, times=2)


async def test_a_device_in_a_process() -> None:
    async with RealWorld() as world:
        await served("sim+c7x://?load_ms=0&isolation=process", world, times=1)


@pytest.mark.virtual
async def test_no_process_in_virtual_time() -> None:
    async with VirtualWorld() as world:
        with pytest.raises(ConfigError, match="virtual time"):
            simulated(Address.parse("sim+c7x://?isolation=process"), world)
