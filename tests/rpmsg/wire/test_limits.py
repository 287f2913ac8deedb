"""What a message cannot say, and what is no message."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

import pytest

from repertory.models.errors import DeviceLost
from repertory.transports.rpmsg.errors import OutOfMemory
from repertory.transports.rpmsg.wire import requests
from repertory.transports.rpmsg.wire.choose import wire_for
from repertory.transports.rpmsg.wire.messages import (
    Descriptor,
    Inferred,
    Job,
    Loaded,
    Malformed,
    Opcode,
    Span,
)
from repertory.transports.rpmsg.wire.v2 import V2
from repertory.transports.rpmsg.wire.v3 import V3
from repertory.transports.rpmsg.wire.wire import Wire

from .by_hand import build, table

WIRES: list[Wire] = [V2(), V3()]
TENSOR = Descriptor(0xC0000000, 24, 2, 32, (2, 3))
TABLE = Span(0xC0001000, 128 * 80)
JOB = Job(1, (TENSOR,))
OOM = OutOfMemory(0, 0, 0)
BODIES = {2: 60, 3: 68}

with_wire = pytest.mark.parametrize("wire", WIRES, ids=["v2", "v3"])


@with_wire
@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"inputs": ()}, "0 inputs"),
        ({"inputs": (), "table": TABLE}, "0 inputs"),
        ({"inputs": (TENSOR,) * 5}, "5 inputs: more than 4 need a table"),
        ({"inputs": (TENSOR,) * 129}, "129 inputs"),
        ({"inputs": (TENSOR,) * 129, "table": TABLE}, "129 inputs"),
        ({"inputs": (replace(TENSOR, shape=(1,) * 7),)}, "up to 6 extents"),
        ({"inputs": (replace(TENSOR, shape=(-1,)),)}, "of 0 or more"),
        ({"inputs": (replace(TENSOR, address=-1),)}, "beyond its field"),
        ({"repeat": 0}, "repeat 0"),
        ({"repeat": 65536}, "repeat 65536"),
        ({"handle": -1}, "INFER 9: .* beyond its field"),
        ({"handle": 2**32, "table": TABLE}, "INFER_LARGE 9: .* beyond its field"),
        ({"table": Span(0, 2**32)}, "beyond its field"),
    ],
)
def test_job_that_no_message_can_say(wire: Wire, change: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        wire.infer(9, replace(JOB, **change))  # type: ignore[arg-type]


@with_wire
def test_no_infer_is_longer_than_a_message(wire: Wire) -> None:
    inline = [len(wire.infer(1, replace(JOB, inputs=(TENSOR,) * count))) for count in range(1, 5)]
    tabled = {
        len(wire.infer(1, replace(JOB, inputs=(TENSOR,) * count, table=TABLE))) for count in range(1, 129)
    }
    head = {2: 32, 3: 64}[wire.major]
    assert inline == [head + 80 * count for count in (1, 2, 3, 4)]
    assert tabled == {{2: 48, 3: 80}[wire.major]}
    assert max(inline) <= 496


@pytest.mark.parametrize(
    "ask",
    [
        lambda: requests.ping(2**32),
        lambda: requests.get_status(-1),
        lambda: requests.dyn_load(1, 2**32),
        lambda: requests.dyn_unload(1, -1),
        lambda: requests.model_load(1, -1),
        lambda: requests.model_unload(1, 2**32),
        lambda: requests.set_printf_buf(1, 2**64, 0),
    ],
)
def test_number_beyond_its_field(ask: Callable[[], bytes]) -> None:
    with pytest.raises(ValueError, match="beyond its field"):
        ask()


@pytest.mark.parametrize("dims", [-1, 7, 2**31 - 1])
def test_table_with_too_many_extents(dims: int) -> None:
    bad = bytearray(table((TENSOR, TENSOR)))
    struct.pack_into("<i", bad, 80 + 16, dims)
    with pytest.raises(Malformed, match=f"at byte 80 claims {dims} extents"):
        requests.unpack_descriptors(bytes(bad), 2)


def test_table_with_a_negative_extent() -> None:
    with pytest.raises(Malformed, match=r"negative extent in \(2, -3\)"):
        requests.unpack_descriptors(table((replace(TENSOR, shape=(2, -3)),)), 1)


def test_negative_number_behind_the_extents_is_no_extent() -> None:
    stale = bytearray(table((TENSOR,)))
    struct.pack_into("<q", stale, 32 + 2 * 8, -1)
    assert requests.unpack_descriptors(bytes(stale), 1) == (TENSOR,)


def test_table_that_is_short() -> None:
    with pytest.raises(Malformed, match="159 bytes do not hold 2 descriptors"):
        requests.unpack_descriptors(table((TENSOR, TENSOR))[:-1], 2)


@with_wire
@pytest.mark.parametrize("size", range(16))
def test_message_shorter_than_a_header(wire: Wire, size: int) -> None:
    with pytest.raises(Malformed, match=f"of {size} bytes"):
        wire.parse(struct.pack("<IIIi", 0x1012, 1, size, 0)[:size])


@with_wire
@pytest.mark.parametrize(
    "opcode", [0, 0x01, 0x21, 0x1000, 0x1002, 0x1011, 0x1031, 0x2001, 0x11021, 2**32 - 1]
)
@pytest.mark.parametrize("status", [0, -2])
def test_opcode_of_no_reply(wire: Wire, opcode: int, status: int) -> None:
    with pytest.raises(Malformed, match=f"0x{opcode:04X} is the opcode of no reply"):
        wire.parse(struct.pack("<IIIi", opcode, 1, 16, status) + bytes(300 if status == 0 else 0))


@with_wire
@pytest.mark.parametrize("claimed", [17, 496, 2**32 - 1])
def test_length_beyond_the_message(wire: Wire, claimed: int) -> None:
    with pytest.raises(Malformed, match=f"DYN_UNLOAD: {claimed} bytes announced, 16 arrived"):
        wire.parse(struct.pack("<IIIi", 0x1012, 1, claimed, 0))


@with_wire
@pytest.mark.parametrize("status", [0, 1])
@pytest.mark.parametrize(
    "opcode", [Opcode.PING, Opcode.GET_STATUS, Opcode.DYN_LOAD, Opcode.MODEL_LOAD, Opcode.INFER]
)
def test_success_without_its_body(wire: Wire, opcode: Opcode, status: int) -> None:
    with pytest.raises(Malformed, match=f"{opcode.name}: a reply of 16 bytes"):
        wire.parse(struct.pack("<IIIi", opcode | 0x1000, 1, 16, status))


@with_wire
@pytest.mark.parametrize("status", [0, -2])
def test_infer_large_is_answered_as_infer(wire: Wire, status: int) -> None:
    with pytest.raises(Malformed, match="INFER_LARGE has no reply of its own"):
        wire.parse(struct.pack("<IIIi", 0x1023, 1, 16, status) + bytes(180))


@pytest.mark.parametrize("status", [0, -3])
def test_reply_of_version_2_is_short_for_version_3(status: int) -> None:
    loaded = Loaded(1, status, 1, OOM)
    assert V2().parse(build(loaded, 2)) == loaded
    with pytest.raises(Malformed, match="DYN_LOAD: a reply of 40 bytes, not 68"):
        V3().parse(build(loaded, 2))


@with_wire
@pytest.mark.parametrize("count", [3, 64])
def test_outputs_that_the_message_lacks(wire: Wire, count: int) -> None:
    claimed = Inferred(1, 0, 0, 0, count, (TENSOR, TENSOR), None, 0, OOM)
    with pytest.raises(Malformed, match=f"{count} outputs, 2 of them in the message"):
        wire.parse(build(claimed, wire.major))


@with_wire
def test_claim_of_more_outputs_than_anybody_holds_is_told(wire: Wire) -> None:
    claimed = Inferred(1, 0, 0, 0, 65, (TENSOR, TENSOR), None, 0, OOM)
    assert wire.parse(build(claimed, wire.major)) == replace(claimed, outputs=())


@with_wire
def test_output_that_is_no_tensor(wire: Wire) -> None:
    bad = bytearray(build(Inferred(1, 0, 0, 0, 1, (TENSOR,), None, 0, OOM), wire.major))
    struct.pack_into("<i", bad, BODIES[wire.major] + 16, 7)
    with pytest.raises(Malformed, match="claims 7 extents"):
        wire.parse(bytes(bad))


@with_wire
@pytest.mark.parametrize("later", [0x0000, 0x0001, 0xFFFF])
def test_wire_is_chosen_by_the_major_version(wire: Wire, later: int) -> None:
    assert type(wire_for(wire.major << 16 | later)) is type(wire)


def test_versions_differ_in_what_they_name() -> None:
    assert [(wire.major, wire.names_result, wire.sets_printf) for wire in WIRES] == [
        (2, False, False),
        (3, True, True),
    ]


@pytest.mark.parametrize("version", [0, 2, 0x01FFFF, 0x040201, 0x01020000, 2**32 - 1])
def test_version_that_nobody_speaks(version: int) -> None:
    with pytest.raises(DeviceLost, match=rf"0x{version:06X}.*speaks 2\.x and 3\.x") as caught:
        wire_for(version)
    assert (caught.value.family, caught.value.call) == ("c7x", "PING")
