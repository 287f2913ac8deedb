"""The parts by themselves: the wire, the memory, the order, the errors."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

import anyio
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from repertory.models import errors
from repertory.models.program import Artifact, Network, Program
from repertory.models.spec import TensorSpec
from repertory.transports.device import Completion
from repertory.transports.frame import Fate, Frame
from repertory.transports.isolation.cargo import Programs
from repertory.transports.isolation.failures import as_device_error, pack, unpack
from repertory.transports.isolation.layout import Layout, slot_size
from repertory.transports.isolation.lineup import Lineup
from repertory.transports.isolation.link import Link
from repertory.transports.isolation.memory import Arena, content, sealed
from repertory.transports.isolation.messages import Abandon, Inline, Run, Share, Ship, ToChild, ToParent
from repertory.transports.isolation.process import Process
from repertory.transports.isolation.wire import Wire, WireClosed
from repertory.transports.virtual import VirtualWorld

from .support import left

Ends = tuple[Wire[ToChild, ToChild], Wire[ToChild, ToChild]]


@contextmanager
def wires() -> Generator[Ends]:
    one, two = (Wire[ToChild, ToChild](end, list[ToChild]) for end in socket.socketpair())
    try:
        yield one, two
    finally:
        one.close()
        two.close()


# -- the wire

inlines = st.none() | st.builds(
    Inline, st.just("<f4"), st.tuples(st.integers(0, 9)), st.binary(max_size=200_000)
)
runs = st.builds(
    Run,
    st.integers(0, 2**60),
    st.text(),
    st.integers(0, 99),
    st.integers(0, 99),
    st.lists(inlines, max_size=3),
)
batches = st.lists(
    st.lists(runs | st.builds(Abandon, st.integers(0, 2**60)), min_size=1, max_size=4), max_size=6
)


@given(batches)
def test_batches_arrive_whole_and_in_order(sent: list[list[ToChild]]) -> None:
    with wires() as (one, two):
        writer = threading.Thread(target=lambda: [*map(one.send, sent)])
        writer.start()
        came: list[ToChild] = []
        while len(came) < sum(map(len, sent)):
            came += two.receive(wait=True)
        writer.join()
        assert came == [message for batch in sent for message in batch]
        assert two.receive(wait=False) == []


@pytest.mark.parametrize("junk", [b"\xc1", b"\x91\x92\xa3Run\x01", b"", msgspec.msgpack.encode([["Open"]])])
def test_a_batch_that_is_none_is_passed_over(junk: bytes, caplog: pytest.LogCaptureFixture) -> None:
    raw, end = socket.socketpair()
    wire: Wire[ToChild, ToChild] = Wire(end, list[ToChild])
    good = msgspec.msgpack.encode([Abandon(3)])
    with raw:
        raw.sendall(b"".join(len(part).to_bytes(4, "little") + part for part in (junk, good)))
        assert wire.receive(wait=True) == [Abandon(3)]
    assert "was not understood" in caplog.text
    with pytest.raises(WireClosed):
        wire.receive(wait=True)
    wire.close()


def test_files_arrive_in_order_and_are_closed() -> None:
    before = left()[0]
    with wires() as (one, two):
        for text in (b"first", b"second", b"never taken"):
            with sealed(text) as file:
                one.send([Share(1)], [file])
        while len(two.receive(wait=False)):
            pass
        for text in (b"first", b"second"):
            with two.file() as file:
                assert content(file, len(text)) == [text]
    assert left()[0] == before


def test_a_closed_wire_says_so_on_both_ends() -> None:
    with wires() as (one, two):
        one.shutdown()
        for end in (one, two):
            with pytest.raises(WireClosed):
                end.receive(wait=True)
        with pytest.raises(WireClosed):
            two.send([Abandon(1)])


@given(st.lists(st.integers(0, 2**60), max_size=40))
def test_what_was_sent_before_the_end_is_read(numbers: list[int]) -> None:
    """Even where the other end stays open, in a process that nobody knows."""
    with wires() as (one, two):
        for number in numbers:
            one.send([Abandon(number)])
        two.shutdown()
        came = [message for _ in numbers[:1] for message in two.receive(wait=True)]
        assert came == [Abandon(number) for number in numbers]
        with pytest.raises(WireClosed):
            two.receive(wait=True)


def test_a_file_that_is_lost_ends_the_wire(caplog: pytest.LogCaptureFixture) -> None:
    """The next message would be given the wrong one. More files than there is room for are cut off, too."""
    before = left()[0]
    with wires() as (one, two):
        with sealed(b"model") as file:
            one.send([Share(1)], [file] * 9)
        one.send([Share(2)])
        with pytest.raises(WireClosed):
            two.receive(wait=True)
    assert "a file that came with a message was lost" in caplog.text
    assert left()[0] == before


# -- the memory

dtypes = st.sampled_from(
    [np.dtype(name) for name in ("bool", "uint8", "int16", "float32", "float64", "int64")]
)
shapes = st.lists(st.integers(0, 5) | st.just("N"), max_size=4).map(tuple)
tensors = st.lists(st.tuples(shapes, dtypes), min_size=1, max_size=4)


def _specs(tensors: list[tuple[tuple[int | str, ...], np.dtype[Any]]]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(f"t{index}", shape, dtype) for index, (shape, dtype) in enumerate(tensors))


def _draw(spec: TensorSpec, random: np.random.Generator) -> NDArray[Any]:
    shape = [dim if isinstance(dim, int) else int(random.integers(0, 4)) for dim in spec.shape]
    array = random.integers(0, 2, size=shape).astype(spec.dtype)
    return np.asfortranarray(array) if random.random() < 0.5 else array


@given(tensors, tensors, st.integers(1, 5), st.integers(0, 2**32))
def test_tensors_come_back_as_they_went(inputs: Any, outputs: Any, slots: int, seed: int) -> None:
    """All slots hold a frame at once, inputs and outputs: nothing overlaps."""
    network = Network("net", _specs(inputs), _specs(outputs))
    layout, random = Layout(network), np.random.default_rng(seed)
    size = slot_size([layout])
    with Arena.file(slots, size) as file:
        here, there = Arena(file, size), Arena(file, size)
    held: list[tuple[Any, int, list[NDArray[Any]], Any]] = []
    for _ in range(slots):
        base = here.take() * size
        for area, specs in ((layout.inputs, network.inputs), (layout.outputs, network.outputs)):
            arrays = [_draw(spec, random) for spec in specs]
            held.append((area, base, arrays, area.store(arrays, here.memory, base)))
    for area, base, arrays, inline in held:
        for array, found in zip(arrays, area.load(inline, there.memory, base), strict=True):
            assert found.dtype == array.dtype
            assert found.shape == array.shape
            assert found.tobytes() == array.tobytes()
    with pytest.raises(ValueError, match="zip"):
        layout.inputs.store([], here.memory, 0)


def test_the_slot_that_was_freed_last_is_taken_first() -> None:
    with Arena.file(3, 64) as file:
        arena = Arena(file, 64)
    taken = [arena.take() for _ in range(3)]
    assert sorted(taken) == [0, 1, 2]
    arena.give_back(taken[1])
    arena.give_back(taken[0])
    assert arena.take() == taken[0]


def test_shared_memory_can_neither_shrink_nor_a_file_change() -> None:
    with Arena.file(1, 64) as file, pytest.raises(PermissionError):
        os.ftruncate(file, 0)
    with sealed(b"model", b"twin") as file:
        assert content(file, 5, 4) == [b"model", b"twin"]
        with pytest.raises(PermissionError):
            os.pwrite(file, b"M", 0)


class _Child:
    """A process as far as a link looks at it."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end


PARTS = [(None, None), (b"twin", None), (None, b"sidecar"), (b"twin", b"sidecar"), (b"", b"")]


@pytest.mark.parametrize(("twin", "sidecar"), PARTS)
@pytest.mark.virtual
async def test_a_file_arrives_with_all_that_came_along(twin: bytes | None, sidecar: bytes | None) -> None:
    sent = Artifact("lib0.out", b"model", "net", twin, sidecar, native_outputs=twin is None)
    arrived: list[Artifact] = []

    def prepare(artifact: Artifact) -> Program:
        arrived.append(artifact)
        return Program("key", "net", (Network("net", (), ()),), 0, 0, None)

    here, there = socket.socketpair()
    child: Wire[ToParent, ToChild] = Wire(there, list[ToChild])
    async with VirtualWorld() as world:
        parent = cast("Process", _Child(here))
        link = Link(world, parent, world.outbox(lambda _: None), {}, family="none")
        link.ship(prepare(sent), sent)
        async with anyio.create_task_group() as loops:
            loops.start_soon(link.write)
            await anyio.sleep(1.0)
            (ship,) = child.receive(wait=False)
            assert isinstance(ship, Ship)
            with child.file() as file:
                Programs().read(ship, file, prepare)
            link.shutdown()
        link.close()
    child.close()
    assert arrived == [sent, sent]


# -- the order


class _Nobody:
    def settled(self, frame: Frame, /) -> None: ...

    def expire(self, frame: Frame, /) -> None: ...


@given(st.data())
def test_completions_are_told_in_the_order_of_starting(data: st.DataObject) -> None:
    networks = [Network(name, (), ()) for name in "ab"]
    programs = [Program(key, key, tuple(networks), 0, 0, None) for key in ("one", "two")]
    picks = st.lists(st.tuples(st.sampled_from(programs), st.sampled_from(networks)), max_size=12)
    started = [Frame(_Nobody(), network, (), program=program) for program, network in data.draw(picks)]
    lineup = Lineup()
    for frame in started:
        lineup.add(frame)
    told: list[Frame] = []
    for frame in data.draw(st.permutations(started)):
        told += [each.frame for each in lineup.ready([Completion(frame, Fate.DONE)])]
        assert all(
            _line(told, line) == _line(started, line)[: len(_line(told, line))] for line in map(_key, told)
        )
    assert len(told) == len(started)


def _key(frame: Frame) -> tuple[str, str]:
    assert frame.program is not None
    return frame.program.key, frame.network.name


def _line(frames: list[Frame], key: tuple[str, str]) -> list[Frame]:
    return [frame for frame in frames if _key(frame) == key]


# -- errors


@pytest.mark.parametrize(
    "error",
    [
        errors.ArtifactError("torn", offset=7),
        errors.ConfigError("no library"),
        errors.ContractError("twice"),
        errors.UnknownModel("no such network"),
        errors.DeviceError("bad", family="memx", call="memx_open", status=0xF1000003),
        errors.DeviceBusy("held", family="memx", call="memx_trylock", status=1),
        errors.DeviceHung("slow", family="cpu", call="InferenceSession"),
        errors.DeviceLost("gone", family="memx"),
        errors.NoRoom("full", wanted=80, free=79),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_crosses_as_it_is(error: errors.RepertoryError) -> None:
    found = unpack(msgspec.msgpack.decode(msgspec.msgpack.encode(pack(error)), type=type(pack(error))))
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert vars(found) == vars(error)


class Refusal(errors.DeviceError):
    """One of a family's own, with what does not travel."""

    def __init__(self) -> None:
        super().__init__("refused", family="npu", call="load", status=-6)
        self.names = ("a", "b")


def test_an_error_of_a_family_becomes_the_nearest_that_all_know() -> None:
    found = unpack(
        msgspec.msgpack.decode(msgspec.msgpack.encode(pack(Refusal())), type=type(pack(Refusal())))
    )
    assert type(found) is errors.DeviceError
    assert str(found) == "refused"
    assert vars(found) == {"family": "npu", "call": "load", "status": -6}


def test_a_foreign_error_becomes_one_of_ours() -> None:
    found = unpack(pack(OSError(5, "Input/output error")))
    assert isinstance(found, errors.DeviceLost)
    assert "Input/output error" in str(found)
    assert isinstance(as_device_error(pack(errors.ContractError("twice"))), errors.DeviceLost)
