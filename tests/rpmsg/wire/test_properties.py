"""Whatever goes in comes out, read by another codec; whatever comes in is a reply or malformed."""

from __future__ import annotations

import struct
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repertory.transports.rpmsg.wire import requests
from repertory.transports.rpmsg.wire.messages import (
    Descriptor,
    Done,
    Inferred,
    Job,
    Malformed,
    Opcode,
    Reply,
    Span,
)
from repertory.transports.rpmsg.wire.v2 import V2
from repertory.transports.rpmsg.wire.v3 import V3
from repertory.transports.rpmsg.wire.wire import Wire

from .by_hand import build, fields, read_infer, table
from .strategies import DESCRIPTORS, I32, JOBS, U32, U64, replies

WIRES: dict[int, Wire] = {2: V2(), 3: V3()}
VERSIONS = st.sampled_from([2, 3])
REPLIES = VERSIONS.flatmap(lambda version: st.tuples(st.just(version), replies(version)))
TAILS = st.binary(max_size=200)
BYTES = st.binary(max_size=600)
HEADER = 16
STATUS_ALONE = {Opcode.DYN_UNLOAD, Opcode.MODEL_UNLOAD, Opcode.SET_PRINTF_BUF}


def parsed(wire: Wire, message: bytes) -> Reply | None:
    """Return the reply, or None for a malformed message; anything else that is raised fails the test."""
    try:
        reply = wire.parse(message)
    except Malformed:
        return None
    assert type(reply) in get_args(Reply)
    return reply


def is_bare_refusal(reply: Reply) -> bool:
    """Whether the reply has no body where others of its opcode have one."""
    return isinstance(reply, Done) and reply.opcode not in STATUS_ALONE


@given(seq=U32, value=U32, address=U64)
def test_request_that_no_version_changes(seq: int, value: int, address: int) -> None:
    assert fields(requests.ping(seq), "") == (0x01, seq)
    assert fields(requests.get_status(seq), "") == (0x03, seq)
    assert fields(requests.dyn_load(seq, value), "4L") == (0x10, seq, value, 0, 0, 0)
    assert fields(requests.dyn_unload(seq, value), "L") == (0x12, seq, value)
    assert fields(requests.model_load(seq, value), "4L") == (0x20, seq, value, 0, 0, 0)
    assert fields(requests.model_unload(seq, value), "L") == (0x22, seq, value)
    assert fields(requests.set_printf_buf(seq, address, value), "QLL") == (0x30, seq, address, value, 0)


@given(version=VERSIONS, seq=U32, job=JOBS)
def test_infer(version: int, seq: int, job: Job) -> None:
    message = WIRES[version].infer(seq, job)
    assert len(message) <= 496
    inputs = job.inputs if job.table is None else (Descriptor(0, 0, 0, 0, ()),) * len(job.inputs)
    memory = (job.input, job.result) if version == 3 else (Span(0, 0), Span(0, 0))
    asked = Job(job.handle, inputs, job.repeat, job.model, job.kv_resident, job.table, *memory)
    assert read_infer(message, version) == (seq, asked)


@given(tensors=st.lists(DESCRIPTORS, max_size=8).map(tuple), tail=TAILS)
def test_table(tensors: tuple[Descriptor, ...], tail: bytes) -> None:
    packed = requests.pack_descriptors(tensors)
    assert packed == table(tensors)
    assert requests.unpack_descriptors(packed + tail, len(tensors)) == tensors


@given(said=REPLIES, stale=U32)
def test_reply(said: tuple[int, Reply], stale: int) -> None:
    version, reply = said
    assert parsed(WIRES[version], build(reply, version, stale=stale)) == reply


@given(said=REPLIES.filter(lambda said: not is_bare_refusal(said[1])), tail=TAILS)
def test_longer_body_of_a_later_version(said: tuple[int, Reply], tail: bytes) -> None:
    version, reply = said
    assert parsed(WIRES[version], build(reply, version, tail=tail)) == reply


@given(said=REPLIES, data=st.data())
def test_truncated(said: tuple[int, Reply], data: st.DataObject) -> None:
    version, reply = said
    message = build(reply, version)
    cut = message[: data.draw(st.integers(0, len(message) - 1))]
    assert parsed(WIRES[version], cut) is None
    if len(cut) >= HEADER:
        honest = cut[:8] + struct.pack("<I", len(cut)) + cut[12:]
        short = parsed(WIRES[version], honest)
        assert short is None or (short.status < 0 and len(cut) == HEADER)


@given(version=VERSIONS, message=BYTES)
def test_noise(version: int, message: bytes) -> None:
    parsed(WIRES[version], message)


@given(version=VERSIONS, opcode=st.sampled_from(list(Opcode)), seq=U32, status=I32, body=BYTES)
def test_noise_behind_a_good_header(version: int, opcode: Opcode, seq: int, status: int, body: bytes) -> None:
    message = struct.pack("<IIIi", opcode | 0x1000, seq, 0, status) + body
    reply = parsed(WIRES[version], message)
    assert reply is None or (reply.seq, reply.status) == (seq, status)
    if isinstance(reply, Inferred):
        held = (len(message) - (60 if version == 2 else 68)) // 80
        assert len(reply.outputs) <= held
        assert status >= 0 or (reply.outputs, reply.table) == ((), None)


@given(version=VERSIONS, status=st.integers(-(2**31), -1), body=st.binary(min_size=52, max_size=480))
def test_failed_infer_is_read_whatever_it_holds(version: int, status: int, body: bytes) -> None:
    message = struct.pack("<IIIi", 0x1021, 7, 16 + len(body), status) + body
    reply = WIRES[version].parse(message)
    assert isinstance(reply, Inferred)
    assert (reply.status, reply.outputs, reply.table) == (status, (), None)
    assert (reply.required is not None) == (version == 3 and status == -7)


@pytest.mark.parametrize("version", WIRES)
@given(data=BYTES, count=st.integers(0, 10))
def test_noise_as_a_table(version: int, data: bytes, count: int) -> None:
    try:
        tensors = requests.unpack_descriptors(memoryview(data), count)
    except Malformed:
        return
    assert len(tensors) == count
    assert all(len(tensor.shape) <= 6 and min(tensor.shape, default=0) >= 0 for tensor in tensors)
