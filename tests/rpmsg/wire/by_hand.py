"""A second codec, for the other side: reads our requests and builds replies, by formats of its own."""

from __future__ import annotations

import struct

from repertory.transports.rpmsg.wire.messages import (
    Descriptor,
    Done,
    Inferred,
    IoMeta,
    Job,
    Loaded,
    Pong,
    Reply,
    Span,
    StatusReply,
    WeightsLoaded,
)

__all__ = ["build", "fields", "read_infer", "table"]


def fields(message: bytes, body: str) -> tuple[int, ...]:
    """Return opcode, seq and the body's fields; the rest of the header has to be as it must."""
    opcode, seq, length, status = struct.unpack("<LLLl", message[:16])
    assert (length, status) == (len(message), 0)
    return opcode, seq, *struct.unpack("<" + body, message[16:])


def read_infer(message: bytes, version: int) -> tuple[int, Job]:
    """Return seq and job; of a job whose descriptors lie in a table, the first inputs are missing."""
    spans = "4Q" if version == 3 else ""
    if message[0] == 0x23:
        opcode, seq, handle, model, count, flags, address, size, rest, *memory = fields(
            message, "4LQLL" + spans
        )
        assert rest == 0
        place, inputs = Span(address, size), tuple(Descriptor(0, 0, 0, 0, ()) for _ in range(count))
    else:
        head = struct.calcsize("<4L" + spans)
        tail = f"{len(message) - 16 - head}s"
        opcode, seq, handle, model, count, flags, *memory = fields(message, f"4L{spans}{tail}")[:-1]
        place, inputs = None, _tensors(message[16 + head :], count)
    assert opcode == (0x21 if place is None else 0x23)
    assert flags >> 17 == 0
    where = (Span(*memory[:2]), Span(*memory[2:])) if memory else (Span(0, 0), Span(0, 0))
    return seq, Job(handle, inputs, flags & 0xFFFF, model, flags >> 16 == 1, place, *where)


def table(descriptors: tuple[Descriptor, ...]) -> bytes:
    """Return descriptors as the firmware writes them; what no extent uses is 0."""
    return b"".join(
        struct.pack("<2Q4l", d.address, d.size, len(d.shape), d.code, d.bits, d.position)
        + struct.pack(f"<{len(d.shape)}q", *d.shape).ljust(48, b"\0")
        for d in descriptors
    )


def build(reply: Reply, version: int, *, stale: int = 0, tail: bytes = b"") -> bytes:
    """Return the bytes of a reply; `stale` fills fields that it does not have, `tail` comes after."""
    opcode, body = _body(reply, version, stale)
    return struct.pack("<LLLl", opcode | 0x1000, reply.seq, 16 + len(body), reply.status) + body + tail


def _tensors(data: bytes, count: int) -> tuple[Descriptor, ...]:
    assert len(data) == 80 * count
    read = [struct.unpack_from("<2Q4l6q", data, 80 * index) for index in range(count)]
    assert all(not any(extents[dims:]) for _, _, dims, _, _, _, *extents in read)
    return tuple(
        Descriptor(address, size, code, bits, tuple(extents[:dims]), position)
        for address, size, dims, code, bits, position, *extents in read
    )


def _body(reply: Reply, version: int, stale: int) -> tuple[int, bytes]:
    match reply:
        case Done():
            return reply.opcode, b""
        case Pong():
            return 0x01, struct.pack("<2L", reply.version, reply.uptime_ms)
        case StatusReply():
            jobs = reply.jobs_completed, reply.jobs_failed
            return 0x03, struct.pack("<4L", reply.version, reply.uptime_ms, *jobs)
        case WeightsLoaded(oom=oom):
            lacking = oom.requested, oom.free, oom.total
            return 0x20, struct.pack("<5L", reply.model, reply.constants, *lacking)
        case Loaded():
            return 0x10, _loaded(reply, version, stale)
        case Inferred():
            return 0x21, _inferred(reply, version, stale)


def _loaded(reply: Loaded, version: int, stale: int) -> bytes:
    oom = reply.oom
    body = struct.pack("<6L", reply.handle, stale, stale, oom.requested, oom.free, oom.total)
    if version == 2:
        return body
    io = reply.io or IoMeta(0, 0, 0, 0, exact=False)
    return body + struct.pack("<2Q3L", io.input_bytes, io.output_bytes, io.inputs, io.outputs, io.exact)


def _inferred(reply: Inferred, version: int, stale: int) -> bytes:
    oom, place = reply.oom, reply.table or Span(0, 0)
    body = struct.pack("<lQ2L", reply.return_value, reply.cycles, reply.count, reply.printf_size)
    body += struct.pack("<Q4L", place.address, place.size, oom.requested, oom.free, oom.total)
    if version == 3:
        body += struct.pack("<Q", stale if reply.required is None else reply.required)
    return body + table(reply.outputs)
