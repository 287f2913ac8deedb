"""Our bytes are those of a C compiler, and its bytes are read field by field."""

from __future__ import annotations

import pytest

from repertory.transports.rpmsg.errors import OutOfMemory
from repertory.transports.rpmsg.wire import requests
from repertory.transports.rpmsg.wire.messages import (
    Descriptor,
    Done,
    Inferred,
    IoMeta,
    Job,
    Loaded,
    Opcode,
    Pong,
    Reply,
    Span,
    StatusReply,
    WeightsLoaded,
)
from repertory.transports.rpmsg.wire.v2 import V2
from repertory.transports.rpmsg.wire.v3 import V3
from repertory.transports.rpmsg.wire.wire import Wire

from .structs import messages

SEQ = 0x89ABCDEF
WIRES: dict[str, Wire] = {"v2": V2(), "v3": V3()}
INPUT = Span(0xA1A2A3A4A5A6A7A8, 0xB1B2B3B4B5B6B7B8)
RESULT = Span(0xC1C2C3C4C5C6C7C8, 0xD1D2D3D4D5D6D7D8)
SHAPE = (0x2, 0x1_0000_0003, 0x2_0000_0004, 0x3_0000_0005, 0x4_0000_0006, 0x5_0000_0007)


def descriptor(index: int, position: int = 0) -> Descriptor:
    return Descriptor(
        address=0xC1234567890ABC00 + index,
        size=0x5000000000 + index,
        code=index % 3,
        bits=8 << index % 4,
        shape=SHAPE[: index + 2 * (index > 3)],
        position=position,
    )


TENSORS = tuple(descriptor(index) for index in range(5))


def job(
    count: int, *, repeat: int = 1, model: int = 0x05060708, kv: bool = False, table: Span | None = None
) -> Job:
    return Job(0x01020304, TENSORS[:count], repeat, model, kv, table, INPUT, RESULT)


FLAGGED = job(1, repeat=0xFFFF, model=0, kv=True)
LARGE = job(5, repeat=0xABCD, kv=True, table=Span(0x7172737475767778, 0x81828384))

REQUESTS = {
    "ping": requests.ping(SEQ),
    "get_status": requests.get_status(SEQ),
    "dyn_load": requests.dyn_load(SEQ, 0x11121314),
    "dyn_unload": requests.dyn_unload(SEQ, 0x21222324),
    "model_load": requests.model_load(SEQ, 0x41424344),
    "model_unload": requests.model_unload(SEQ, 0x31323334),
    "set_printf_buf": requests.set_printf_buf(SEQ, 0x5152535455565758, 0x61626364),
} | {
    f"{version}.{name}": wire.infer(SEQ, asked)
    for version, wire in WIRES.items()
    for name, asked in (
        *((f"infer.{count}", job(count)) for count in (1, 2, 3, 4)),
        ("infer.flags", FLAGGED),
        ("infer_large", LARGE),
    )
}

NOTHING = OutOfMemory(0, 0, 0)
LACKING = OutOfMemory(0x91929394, 0x81828384, 0x71727374)
HANDLE = 0x10111213

PLAIN: dict[str, Reply] = {
    "dyn_unloaded": Done(SEQ, 0, Opcode.DYN_UNLOAD),
    "model_unloaded": Done(SEQ, 0, Opcode.MODEL_UNLOAD),
    "printf_set": Done(SEQ, 0, Opcode.SET_PRINTF_BUF),
    "pong": Pong(SEQ, 0, 0x020305, 0xF1F2F3F4),
    "status": StatusReply(SEQ, 0, 0x030001, 0xE1E2E3E4, 0xD1D2D3D4, 0xC1C2C3C4),
    "model_loaded": WeightsLoaded(SEQ, 0, 0x91929394, 0xA1A2A3A4, NOTHING),
    "model_loaded.oom": WeightsLoaded(SEQ, -3, 0, 0, LACKING),
    **{f"refusal.{opcode:02x}": Done(SEQ, -2, opcode) for opcode in Opcode},
}


def io(*, exact: bool) -> IoMeta:
    return IoMeta(
        inputs=0x60616263,
        outputs=0x70717273,
        input_bytes=0x4041424344454647,
        output_bytes=0x5051525354555657,
        exact=exact,
    )


LOADED: dict[str, Reply] = {
    "v2.loaded": Loaded(SEQ, 0, HANDLE, NOTHING, None),
    "v3.loaded": Loaded(SEQ, 0, HANDLE, NOTHING, io(exact=True)),
    "v3.loaded.silent": Loaded(SEQ, 0, HANDLE, NOTHING, None),
    "v3.loaded.inexact": Loaded(SEQ, 0, HANDLE, NOTHING, io(exact=False)),
    "v2.loaded.oom": Loaded(SEQ, -3, 0, LACKING, None),
    "v3.loaded.oom": Loaded(SEQ, -3, 0, LACKING, None),
}


def inferred(
    count: int,
    outputs: tuple[Descriptor, ...] = (),
    *,
    status: int = 0,
    table: Span | None = None,
    oom: OutOfMemory = NOTHING,
    required: int | None = None,
) -> Inferred:
    return Inferred(
        seq=SEQ,
        status=status,
        return_value=-0x01020304,
        cycles=0x1112131415161718,
        count=count,
        outputs=outputs,
        table=table,
        printf_size=0x21222324,
        oom=oom,
        required=required,
    )


BOTH = {f"inferred.{count}": inferred(count, TENSORS[:count]) for count in range(6)} | {
    "inferred.none_but_room": inferred(0),
    "inferred.table": inferred(6, table=Span(0xDE00000000001000, 0x31323334)),
    "inferred.failed": inferred(10**9, status=-11),
    "inferred.oom": inferred(0, status=-3, oom=OutOfMemory(0x51525354, 0x61626364, 0x71727374)),
    "inferred.tuple": inferred(2, (descriptor(0, 0x7FFFFFFF), descriptor(1, 3))),
}

REPLIES: dict[str, Reply] = (
    LOADED
    | {f"{version}.{name}": reply for version in WIRES for name, reply in BOTH.items()}
    | {
        "v2.inferred.size": inferred(0, status=-7),
        "v3.inferred.size": inferred(0, status=-7, required=0x4142434445464748),
    }
)


@pytest.mark.parametrize("name", REQUESTS)
def test_request_is_what_c_makes_of_it(name: str) -> None:
    assert REQUESTS[name].hex() == messages()[name].hex()


@pytest.mark.parametrize("version", WIRES)
@pytest.mark.parametrize("name", PLAIN)
def test_reply_of_all_versions_is_read(name: str, version: str) -> None:
    assert WIRES[version].parse(messages()[name]) == PLAIN[name]


@pytest.mark.parametrize("name", REPLIES)
def test_reply_of_one_version_is_read(name: str) -> None:
    assert WIRES[name[:2]].parse(messages()[name]) == REPLIES[name]


def test_every_message_is_compared() -> None:
    assert messages().keys() == REQUESTS.keys() | PLAIN.keys() | REPLIES.keys()


@pytest.mark.parametrize("count", range(6))
def test_table_is_what_c_makes_of_it(count: int) -> None:
    message = messages()[f"v2.inferred.{count}"]
    table = message[60:]
    assert requests.pack_descriptors(TENSORS[:count]) == table
    assert requests.unpack_descriptors(memoryview(table), count) == TENSORS[:count]
