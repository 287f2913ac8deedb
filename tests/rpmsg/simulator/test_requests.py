"""Every request and every refusal, in both versions, by hand-made bytes."""

from __future__ import annotations

import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest

from repertory.models.dynmod import Dynmod
from repertory.transports.answers import hash_answer
from repertory.transports.rpmsg.simulator.dsp import SimulatedDsp
from repertory.transports.rpmsg.simulator.parameters import SimulatedC7x
from repertory.transports.virtual import VirtualWorld

from .host import (
    INFER,
    LARGE,
    LOAD,
    PING,
    PRINTF,
    STATUS,
    UNLOAD,
    UNLOAD_WEIGHTS,
    WEIGHTS,
    Host,
    Reply,
    describe,
)
from .modules import double, many, scalar, square, summed, wide

pytestmark = pytest.mark.virtual

Wire = Literal[2, 3]
X = np.array([[1, 2, 3, 4]], np.float32)
WIRES = pytest.mark.parametrize("wire", [2, 3])


@asynccontextmanager
async def host(wire: Wire, **params: Any) -> AsyncGenerator[Host]:
    async with VirtualWorld() as world:
        connected = await Host(SimulatedDsp(SimulatedC7x(wire=wire, **params), world), wire).open()
        try:
            yield connected
        finally:
            connected.close()
        assert connected.dsp.leaks == []
        assert world.now() < 20, "no wait went on up to its time-out"


@WIRES
async def test_ping_tells_version_and_uptime(wire: Wire) -> None:
    async with host(wire, uptime_ms=1234) as h:
        reply = await h.ask(PING)
        assert (reply.kind, reply.status, reply.words) == (0x1001, 0, (wire << 16, 1234))


@WIRES
async def test_another_version_is_told(wire: Wire) -> None:
    async with host(wire, version=0x040102) as h:
        assert (await h.ask(PING)).words[0] == 0x040102


@WIRES
async def test_uptime_wraps(wire: Wire) -> None:
    async with host(wire, uptime_ms=(1 << 32) - 5, load_ms=20, load_mbs=1e9) as h:
        await h.loaded(double())
        assert (await h.ask(PING)).words[1] == 15


@WIRES
async def test_status_counts_only_what_reached_the_module(wire: Wire) -> None:
    async with host(wire) as h:
        handle = await h.loaded(double())
        await h.run(handle, X)
        await h.run(handle, X, X)
        await h.run(0, X)
        await h.run(handle, count=0)
        reply = await h.ask(STATUS)
        assert (reply.kind, reply.status) == (0x1003, 0)
        assert reply.words[0] == wire << 16
        assert reply.words[2:] == (1, 1)


@WIRES
async def test_load_reply(wire: Wire) -> None:
    async with host(wire) as h:
        reply = await h.load(double())
        assert (reply.kind, reply.status, reply.length) == (0x1010, 0, 40 if wire == 2 else 68)
        assert reply.words[:6] == (1, 0, 0, 0, 0, 0)
        if wire == 3:
            input_bytes, output_bytes, inputs, outputs, flags = struct.unpack_from("<QQIII", reply.body, 24)
            assert (input_bytes >= 16, output_bytes >= 16, inputs, outputs, flags & 1) == (
                True,
                True,
                1,
                1,
                1,
            )


@WIRES
async def test_a_twin_computes(wire: Wire) -> None:
    async with host(wire) as h:
        reply = await h.run(await h.loaded(double()), X)
        assert reply.length == (140 if wire == 2 else 148)
        [y] = h.outputs(reply)
        assert y.dtype == np.float32
        assert y.tolist() == [[2, 4, 6, 8]]
        assert h.inference(reply).returned == 0
        assert h.dsp.firmware.faults == []


@WIRES
async def test_hash_answers_are_those_of_the_library(wire: Wire) -> None:
    async with host(wire, answers="hash") as h:
        network = Dynmod.read(many(3)).network
        assert network is not None
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        outputs = h.outputs(await h.run(await h.loaded(many(3)), x))
        for got, wanted in zip(outputs, hash_answer(network, [x]), strict=True):
            assert np.array_equal(got, wanted)


@WIRES
@pytest.mark.parametrize("count", [1, 5, 6, 64])
async def test_many_outputs_go_by_a_table_in_the_result(wire: Wire, count: int) -> None:
    async with host(wire) as h:
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        reply = await h.run(await h.loaded(many(count)), x)
        told = h.inference(reply)
        assert told.count == count
        assert len(told.rest) == (80 * count if count <= 5 else 80)
        assert (told.table, told.table_size) == (
            (0, 0) if count <= 5 else (h.results + 64 * count, 80 * count)
        )
        for place, output in enumerate(h.outputs(reply)):
            assert np.array_equal(output, x * (place + 1))


@WIRES
async def test_tensors_without_axes(wire: Wire) -> None:
    async with host(wire) as h:
        [y] = h.outputs(await h.run(await h.loaded(scalar()), np.array(3, np.float16)))
        assert y.dtype == np.float16
        assert (y.shape, y.item()) == ((), -3)


@WIRES
@pytest.mark.parametrize("count", [1, 4, 5, 128])
async def test_large_requests(wire: Wire, count: int) -> None:
    async with host(wire) as h:
        handle = await h.loaded(summed(count))
        xs = [np.full(3, place, np.float32) for place in range(count)]
        reply = await h.ask(LARGE, h.large_job(handle, h.put(xs)))
        assert h.outputs(reply)[0].tolist() == [sum(range(count))] * 3


# -- refusals


Ask = Callable[[Host, int], Awaitable[Reply]]


def request(kind: int, body: bytes = b"") -> Ask:
    return lambda h, _handle: h.ask(kind, body)


def words(kind: int, *numbers: int) -> Ask:
    return request(kind, struct.pack(f"<{len(numbers)}I", *numbers))


def job(**options: Any) -> Ask:
    return lambda h, handle: h.run(
        options.get("handle", handle), X, **{k: v for k, v in options.items() if k != "handle"}
    )


def at(address: int) -> Ask:
    return lambda h, handle: h.ask(INFER, h.job(handle, describe(address, X)))


def large(**options: Any) -> Ask:
    return lambda h, handle: h.ask(LARGE, h.large_job(handle, h.put([X]), **options))


async def without_axes(h: Host, handle: int, ndim: int) -> Reply:
    descriptor = bytearray(h.put([X]))
    descriptor[16:20] = struct.pack("<i", ndim)
    return await h.ask(INFER, h.job(handle, bytes(descriptor)))


REFUSALS: dict[str, tuple[Ask, int, int]] = {
    "unknown opcode": (request(0x77), -2, 16),
    "opcode with the reply's bit": (request(0x1001), -2, 16),
    "short DYN_LOAD": (words(LOAD, 1, 2, 3), -2, 16),
    "short DYN_UNLOAD": (request(UNLOAD, b"123"), -2, 16),
    "short MODEL_LOAD": (words(WEIGHTS, 1), -2, 16),
    "short INFER": (words(INFER, 1, 0, 1), -2, 16),
    "INFER without its descriptor": (lambda h, handle: h.ask(INFER, h.job(handle, b"", count=1)), -2, 16),
    "short INFER_LARGE": (words(LARGE, 1, 0, 1, 0), -2, 16),
    "handle 0": (job(handle=0), -12, 140),
    "unknown weights": (job(model=9), -12, 140),
    "no inputs": (lambda h, handle: h.ask(INFER, h.job(handle, b"")), -14, 140),
    "5 inputs inline": (lambda h, handle: h.ask(INFER, h.job(handle, h.put([X]) * 5)[:480]), -14, 140),
    "input below": (at(0xBFFFFFFF), -14, 140),
    "input in the result": (at(0xDE000000), -14, 140),
    "input nowhere": (at(0xFFFF_FFFF_FFFF_FFF0), -14, 140),
    "7 axes": (lambda h, handle: without_axes(h, handle, 7), -14, 140),
    "-1 axes": (lambda h, handle: without_axes(h, handle, -1), -14, 140),
    "no inputs in a table": (large(count=0), -14, 140),
    "129 inputs in a table": (large(count=129), -14, 140),
    "more inputs than the table has": (large(count=2), -14, 140),
    "table elsewhere": (large(table=0xDE000000), -6, 140),
    "two inputs for one": (lambda h, handle: h.run(handle, X, X), -11, 140),
    "doubles for floats": (lambda h, handle: h.run(handle, X.astype(np.float64)), -11, 140),
    "integers for floats": (lambda h, handle: h.run(handle, X.astype(np.int32)), -11, 140),
    "another shape": (lambda h, handle: h.run(handle, X.reshape(4)), -11, 140),
    "unload of nothing": (words(UNLOAD, 7), -12, 16),
    "unload of handle 0": (words(UNLOAD, 0), -12, 16),
    "unload of no weights": (words(UNLOAD_WEIGHTS, 1), -12, 16),
    "empty module": (words(LOAD, 0, 0, 0, 0), -7, 40),
    "module of 481 MiB": (words(LOAD, 481 << 20, 0, 0, 0), -7, 40),
    "module cut short": (lambda h, _: h.ask(LOAD, h.put_module(double()[:-200])), -9, 40),
    "no module": (words(LOAD, 4, 0, 0, 0), -9, 40),
    "empty weights": (words(WEIGHTS, 0, 0, 0, 0), -7, 36),
    "weights of 481 MiB": (words(WEIGHTS, 481 << 20, 0, 0, 0), -7, 36),
    "no weights": (words(WEIGHTS, 64, 0, 0, 0), -13, 36),
}


@WIRES
@pytest.mark.parametrize("name", REFUSALS)
async def test_refusal(wire: Wire, name: str) -> None:
    ask, status, length = REFUSALS[name]
    longer = {40: 68, 140: 148} if wire == 3 else {}
    async with host(wire) as h:
        handle = await h.loaded(double())
        reply = await ask(h, handle)
        assert (reply.status, reply.length) == (status, longer.get(length, length))
        assert reply.kind & 0x1000
        counted = h.dsp.firmware.jobs_failed
        assert counted == (1 if status == -11 else 0)
        if status == -11:
            assert h.inference(reply).returned != 0
        again = await h.load(double())
        assert again.status == 0, "a refusal does no harm"
        assert h.outputs(await h.run(again.words[0], X))[0].tolist() == [[2, 4, 6, 8]]


async def test_sizes_at_the_border_of_version_2() -> None:
    async with host(2) as h:
        assert (await words(LOAD, 0x1D400000, 0, 0, 0)(h, 0)).status == -9
        assert (await words(LOAD, 0x1D400001, 0, 0, 0)(h, 0)).status == -7


@WIRES
async def test_nothing_loaded(wire: Wire) -> None:
    async with host(wire) as h:
        assert (await h.run(1, X)).status == -10


@WIRES
async def test_a_packet_below_16_bytes_is_dropped(wire: Wire) -> None:
    async with host(wire) as h:
        assert h.endpoint.send(b"x" * 15)
        assert (await h.ask(PING)).kind == 0x1001


@WIRES
async def test_the_length_field_is_ignored(wire: Wire) -> None:
    async with host(wire) as h:
        seq = h.send(PING, length=99999)
        assert (await h.reply()).seq == seq


@WIRES
async def test_input_in_the_kv_cache(wire: Wire) -> None:
    async with host(wire) as h:
        handle = await h.loaded(double())
        if wire == 2:
            h.memory(0xDD400000, 16)[:] = X.tobytes()
        reply = await at(0xDD400000)(h, handle)
        assert reply.status == (0 if wire == 2 else -14)


# -- handles and slots


@WIRES
async def test_handles_are_never_used_again(wire: Wire) -> None:
    async with host(wire) as h:
        for handle in (1, 2, 3):
            assert await h.loaded(double()) == handle
            assert await h.unload(handle) == 0
            assert await h.unload(handle) == -12


@WIRES
async def test_the_fifth_module_does_not_fit(wire: Wire) -> None:
    async with host(wire) as h:
        for _ in range(4):
            await h.loaded(double())
        assert (await h.load(double())).status == -9
        assert await h.unload(2) == 0
        assert (await h.load(double())).status == 0
        assert h.dsp.firmware.loaded == [1, 3, 4, 5]


@WIRES
async def test_a_stale_handle_runs_what_was_loaded_last(wire: Wire) -> None:
    async with host(wire) as h:
        first, _ = await h.loaded(double()), await h.loaded(square())
        assert h.outputs(await h.run(first, X))[0].tolist() == [[1, 4, 9, 16]]
        assert h.dsp.firmware.faults == ["a job for module 1 ran module 2"]


@WIRES
async def test_unloading_another_empties_what_runs(wire: Wire) -> None:
    async with host(wire) as h:
        first, second = await h.loaded(double()), await h.loaded(square())
        assert await h.unload(first) == 0
        [y] = h.outputs(await h.run(second, X))
        assert y.tolist() != [[1, 4, 9, 16]]
        assert "has reset" in h.dsp.firmware.faults[-1]


@WIRES
async def test_unloading_what_runs_leaves_nothing_to_run(wire: Wire) -> None:
    async with host(wire) as h:
        first, second = await h.loaded(double()), await h.loaded(square())
        assert await h.unload(second) == 0
        assert (await h.run(first, X)).status == -10
        assert "lost its entry point" in h.dsp.firmware.faults[-1]


@WIRES
async def test_whoever_overwrites_the_module_gets_garbage(wire: Wire) -> None:
    async with host(wire) as h:
        handle = await h.loaded(double())
        h.buffers[0].view[len(double()) - 1] ^= 1
        [y] = h.outputs(await h.run(handle, X))
        assert y.tolist() != [[2, 4, 6, 8]]
        assert np.isfinite(y).all()
        assert "overwritten where it lies" in h.dsp.firmware.faults[-1]


@WIRES
async def test_out_of_memory(wire: Wire) -> None:
    async with host(wire, heap_mb=10, workspace_mb=4) as h:
        await h.loaded(double())
        await h.loaded(double())
        reply = await h.load(double())
        assert reply.status == -3
        assert reply.words[3:6] == (4 << 20, 2 << 20, 10 << 20)
        await h.unload(1)
        assert (await h.load(double())).status == 0, "an unload resets the pools of all"


@WIRES
async def test_failed_loads_carry_stale_bytes(wire: Wire) -> None:
    async with host(wire) as h:
        uptime = (await h.ask(PING)).words
        reply = await words(LOAD, 0, 0, 0, 0)(h, 0)
        assert reply.status == -7
        assert reply.words[:2] == uptime


@WIRES
async def test_weights_apart(wire: Wire) -> None:
    tensor = struct.pack("<iQiiiBBHqq", 15, 0xDD5E40F096B4A13F, 1, 0, 1, 2, 32, 1, 2, 8) + bytes(8)
    blob = struct.pack("<Q", 2) + tensor + struct.pack("<iq", 1, 5)
    async with host(wire) as h:
        for model in (1, 2, 3, 4):
            reply = await h.ask(WEIGHTS, h.put_module(blob))
            assert (reply.kind, reply.status, reply.length) == (0x1020, 0, 36)
            assert reply.words == (model, 2, 0, 0, 0)
        assert (await h.ask(WEIGHTS, h.put_module(blob))).status == -13
        assert (await h.ask(UNLOAD_WEIGHTS, struct.pack("<I", 2))).status == 0
        handle = await h.loaded(double())
        assert (await h.run(handle, X, model=1)).status == 0
        assert (await h.run(handle, X, model=2)).status == -12
        for cut in (8, 20, 40, len(tensor), len(blob) - 1):
            assert (await h.ask(WEIGHTS, h.put_module(blob[:cut]))).status == -13


# -- printed text


@WIRES
@pytest.mark.parametrize("repeat", [1, 3, 9000])
async def test_printed_text(wire: Wire, repeat: int) -> None:
    async with host(wire, prints="run\nagain\n") as h:
        reply = await h.run(await h.loaded(double()), X, repeat=repeat)
        address = 0xDFFF0000 if wire == 2 else h.buffers[1].address
        size = min(10 * repeat, 65520)
        assert struct.unpack("<4I", h.memory(address, 16)) == (0x50524E54, size, 65520, 0)
        assert bytes(h.memory(address + 16, size)) == (b"run\nagain\n" * repeat)[:size]
        assert h.inference(reply).printed == size


async def test_version_3_wants_a_buffer_for_text() -> None:
    async with VirtualWorld() as world:
        h = await Host(SimulatedDsp(SimulatedC7x(wire=3), world), 3).open(printf=False)
        assert (await h.load(double())).status == -2
        assert (await h.run(1, X)).status == -10
        for address, size, status in (
            (h.buffers[1].address, 16, -7),
            (0x1000, 65536, -6),
            (h.results, 65536, 0),
        ):
            assert (await h.ask(PRINTF, struct.pack("<QII", address, size, 0))).status == status
        assert (await h.load(double())).status == 0


async def test_version_2_knows_no_such_request() -> None:
    async with host(2) as h:
        assert (await h.ask(PRINTF, struct.pack("<QII", h.inputs, 65536, 0))).status == -2


# -- results


async def test_every_result_of_version_2_lies_at_one_place() -> None:
    async with host(2) as h:
        handle = await h.loaded(double())
        await h.run(handle, X)
        await h.run(handle, X * 10)
        assert np.frombuffer(h.memory(0xDE000000, 16), np.float32).tolist() == [20, 40, 60, 80]


async def test_results_of_version_3_lie_where_they_are_told() -> None:
    async with host(3) as h:
        handle = await h.loaded(double())
        replies = [await h.run(handle, X * n, results=h.results + 4096 * n) for n in (1, 2)]
        for n, reply in zip((1, 2), replies, strict=True):
            assert h.outputs(reply)[0].tolist() == (2 * n * X).tolist()


async def test_version_3_refuses_a_result_that_does_not_fit() -> None:
    async with host(3) as h:
        handle = await h.loaded(many(7))
        x = np.zeros((2, 3), np.float32)
        reply = await h.run(handle, x, room=100)
        assert (reply.status, h.inference(reply).required) == (-7, 7 * 64 + 7 * 80)
        assert (await h.run(handle, x, room=7 * 64 + 7 * 80)).status == 0
        assert (await h.run(handle, x, results=0xE0000000)).status == -6


async def test_version_2_does_not_look_at_the_end_of_its_memory() -> None:
    big = np.zeros((5 << 20) // 4, np.float32)
    async with host(2, answers="hash") as h:
        reply = await h.run(await h.loaded(wide(len(big), 7)), big)
        told = h.inference(reply)
        assert (reply.status, told.count, told.table) == (0, 7, 0xDE000000 + 35 * (1 << 20))


# -- what the host must leave alone


@WIRES
async def test_an_input_that_changes_while_it_is_read_is_noticed(wire: Wire) -> None:
    async with host(wire) as h:
        handle = await h.loaded(double())
        h.send(INFER, h.job(handle, h.put([X])))
        h.put([X + 1])
        [y] = h.outputs(await h.reply())
        assert y.tolist() not in ([[2, 4, 6, 8]], [[4, 6, 8, 10]])
        assert h.dsp.firmware.faults == ["input overwritten while job 1 read it"]


@WIRES
async def test_memory_that_was_given_back_is_noticed(wire: Wire) -> None:
    async with host(wire) as h:
        handle = await h.loaded(double())
        body = h.job(handle, h.put([X]))
        h.buffers[-2 if wire == 3 else 0].close()
        await h.ask(INFER, body)
        assert any("no attached buffer" in note for note in h.dsp.firmware.faults)


def test_parameters_say_what_is_wrong() -> None:
    from repertory.models.errors import ConfigError

    good = SimulatedC7x()
    bad: list[dict[str, Any]] = [
        {"wire": 4}, {"answers": "x"}, {"latency_ms": -1}, {"latency_ms": float("nan")}, {"load_mbs": 0},
        {"tsc_mhz": 0}, {"carveout_mb": 100}, {"heap_mb": -1}, {"uptime_ms": 1 << 32}, {"version": -1},
    ]  # fmt: skip
    for changes in bad:
        with pytest.raises(ConfigError, match="a simulated C7x has"):
            replace(good, **changes)
