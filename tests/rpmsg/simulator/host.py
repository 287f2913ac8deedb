"""A host that speaks to the DSP in bytes of its own making: the protocol a third time, for these tests."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from repertory.transports.rpmsg.endpoint import Endpoint
from repertory.transports.rpmsg.memory import Buffer
from repertory.transports.rpmsg.simulator.dsp import SimulatedDsp

__all__ = ["Host", "Reply", "describe"]

PING, STATUS, LOAD, UNLOAD = 0x01, 0x03, 0x10, 0x12
WEIGHTS, INFER, UNLOAD_WEIGHTS, LARGE, PRINTF = 0x20, 0x21, 0x22, 0x23, 0x30
MIB = 1 << 20
Tensor = NDArray[Any]


@dataclass
class Reply:
    """A reply's header, and what follows."""

    kind: int
    seq: int
    length: int
    status: int
    body: bytes

    @classmethod
    def read(cls, message: bytes) -> Self:
        kind, seq, length, status = struct.unpack_from("<IIIi", message)
        return cls(kind, seq, length, status, message[16:])

    @property
    def words(self) -> tuple[int, ...]:
        return struct.unpack_from(f"<{len(self.body) // 4}I", self.body)


@dataclass
class Inference:
    """The fields of a reply to INFER, whichever version."""

    returned: int
    cycles: int
    count: int
    printed: int
    table: int
    table_size: int
    required: int
    rest: bytes

    @classmethod
    def read(cls, reply: Reply, wire: int) -> Self:
        returned, cycles, count, printed, table, size, *_ = struct.unpack_from("<iQIIQIIII", reply.body)
        required = struct.unpack_from("<Q", reply.body, 44)[0] if wire == 3 else 0
        return cls(
            returned, cycles, count, printed, table, size, required, reply.body[44 if wire == 2 else 52 :]
        )


def describe(address: int, array: Tensor) -> bytes:
    """80 bytes for an input."""
    code = {"i": 0, "u": 1, "f": 2}[array.dtype.kind]
    shape = (*array.shape, 0, 0, 0, 0, 0, 0)[:6]
    bits = array.dtype.itemsize * 8
    return struct.pack("<QQiiii6q", address, array.nbytes, array.ndim, code, bits, 0, *shape)


class Host:
    """One connection, with its buffers.

    Attributes:
        whole: staging (and all else, in version 2).
        inputs: address where inputs go; `results` likewise.
    """

    def __init__(self, dsp: SimulatedDsp, wire: int) -> None:
        self.dsp = dsp
        self.wire = wire
        self.seq = 100
        self.endpoint: Endpoint
        self.buffers: list[Buffer] = []
        self.table = 0

    async def open(self, *, printf: bool = True) -> Self:
        self.endpoint = await self.dsp.open_endpoint()
        sizes = [512 * MIB] if self.wire == 2 else [480 * MIB, 65536, 65536, 65536]
        self.buffers = [self.dsp.allocate(size) for size in sizes]
        self.inputs = 0xC0000000 + 100 * MIB if self.wire == 2 else self.buffers[2].address
        self.results = 0xDE000000 if self.wire == 2 else self.buffers[3].address
        if self.wire == 3 and printf:
            reply = await self.ask(PRINTF, struct.pack("<QII", self.buffers[1].address, 65536, 0))
            assert (reply.kind, reply.status) == (0x1030, 0)
        return self

    def close(self) -> None:
        self.endpoint.close()
        for buffer in self.buffers:
            buffer.close()

    def memory(self, address: int, size: int) -> memoryview:
        """The host's view of the DSP's addresses."""
        for buffer in self.buffers:
            if buffer.address <= address < buffer.address + buffer.size:
                return buffer.view[address - buffer.address : address - buffer.address + size]
        raise LookupError(hex(address))

    def send(self, kind: int, body: bytes = b"", *, length: int | None = None) -> int:
        self.seq += 1
        size = 16 + len(body) if length is None else length
        assert self.endpoint.send(struct.pack("<IIIi", kind, self.seq, size, 0) + body)
        return self.seq

    async def receive(self, timeout: float = 1000.0) -> Reply | None:
        message = await self.endpoint.receive(timeout)
        return None if message is None else Reply.read(message)

    async def reply(self) -> Reply:
        reply = await self.receive()
        assert reply is not None
        return reply

    async def ask(self, kind: int, body: bytes = b"") -> Reply:
        seq = self.send(kind, body)
        reply = await self.reply()
        assert (reply.seq, reply.length) == (seq, 16 + len(reply.body))
        return reply

    def put_module(self, module: bytes) -> bytes:
        """Write a module to where it belongs; return the body of DYN_LOAD."""
        self.buffers[0].view[: len(module)] = module
        return struct.pack("<4I", len(module), 0, 0, 0)

    async def load(self, module: bytes) -> Reply:
        return await self.ask(LOAD, self.put_module(module))

    async def loaded(self, module: bytes) -> int:
        reply = await self.load(module)
        assert reply.status == 0
        return reply.words[0]

    async def unload(self, handle: int) -> int:
        return (await self.ask(UNLOAD, struct.pack("<I", handle))).status

    def put(self, arrays: Sequence[Tensor]) -> bytes:
        """Write inputs; return their descriptors."""
        at, described = self.inputs + 16384, b""
        for array in arrays:
            self.memory(at, array.nbytes)[:] = array.tobytes()
            described += describe(at, array)
            at += -(-array.nbytes // 64) * 64
        return described

    def job(
        self,
        handle: int,
        descriptors: bytes,
        *,
        model: int = 0,
        count: int | None = None,
        repeat: int = 1,
        room: int = 65536,
        results: int | None = None,
    ) -> bytes:
        """The body of INFER."""
        n = len(descriptors) // 80 if count is None else count
        return struct.pack("<4I", handle, model, n, repeat) + self.told(room, results) + descriptors

    def large_job(
        self,
        handle: int,
        descriptors: bytes,
        *,
        count: int | None = None,
        table: int | None = None,
        repeat: int = 1,
    ) -> bytes:
        """The body of INFER_LARGE, with the table put before the inputs."""
        self.memory(self.inputs, len(descriptors))[:] = descriptors
        n = len(descriptors) // 80 if count is None else count
        at = self.inputs if table is None else table
        fixed = struct.pack("<4IQII", handle, 0, n, repeat, at, len(descriptors), 0)
        return fixed + self.told(65536, None)

    def told(self, room: int, results: int | None) -> bytes:
        if self.wire == 2:
            return b""
        return struct.pack("<4Q", self.inputs, 65536, self.results if results is None else results, room)

    async def run(self, handle: int, *arrays: Tensor, **options: Any) -> Reply:
        return await self.ask(INFER, self.job(handle, self.put(arrays), **options))

    def inference(self, reply: Reply) -> Inference:
        return Inference.read(reply, self.wire)

    def outputs(self, reply: Reply) -> list[Tensor]:
        """Read results where the reply says that they lie."""
        assert (reply.kind, reply.status) == (0x1021, 0)
        told = self.inference(reply)
        table = bytes(self.memory(told.table, told.table_size)) if told.table else told.rest
        found: list[Tensor] = []
        for place in range(told.count):
            address, size, ndim, code, bits, index, *shape = struct.unpack_from(
                "<QQiiii6q", table, 80 * place
            )
            assert (index, address % 64) == (place, 0)
            dtype = np.dtype(f"{'iuf'[code]}{bits // 8}")
            found.append(np.frombuffer(bytes(self.memory(address, size)), dtype).reshape(shape[:ndim]))
        return found
