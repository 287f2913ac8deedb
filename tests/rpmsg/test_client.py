"""Requests and replies: what is matched, what is dropped, what is sent again, and when."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import pytest

from repertory.models.errors import DeviceHung, DeviceLost
from repertory.transports.rpmsg.client import ATTEMPTS, Client
from repertory.transports.rpmsg.errors import DspRefusal, OutOfMemory
from repertory.transports.rpmsg.wire import requests
from repertory.transports.rpmsg.wire.messages import Done, Inferred, Loaded, Opcode, Reply
from repertory.transports.world import drive
from tests.rpmsg.scripted import NOTHING, Answer, ScriptedDsp, silent, usual, well
from tests.rpmsg.wire.by_hand import build

VERSIONS = pytest.mark.parametrize("version", [2, 3])
PING, STATUS, LOAD, UNLOAD, INFER = 0x01, 0x03, 0x10, 0x12, 0x21
NONE = {"late": 0, "duplicate": 0, "wrong_type": 0, "malformed": 0, "unknown": 0}


def slow(opcode: int, seq: int, _message: bytes) -> list[Answer]:
    return [(0.001, build(usual(opcode, seq), 2))]


def connected(dsp: ScriptedDsp, *, seq: int = 1) -> Client:
    client = Client(dsp, now=dsp.now, seq=itertools.count(seq))
    drive(client.open(bound=15))
    return client


def posted(client: Client, call: Opcode = Opcode.GET_STATUS) -> Any:
    return client.post(call, partial(requests.dyn_unload, handle=1))


def told(dsp: ScriptedDsp, *replies: bytes) -> None:
    """Let these arrive with the next message that is sent, and nothing else."""
    left = list(replies)

    def script(_opcode: int, _seq: int, _message: bytes) -> Sequence[Answer]:
        said, left[:] = [(0.0, reply) for reply in left], []
        return said

    dsp.script = script


def received(client: Client) -> list[tuple[Any, Reply | None]]:
    return [(request, request.reply) for request in drive(client.receive(1.0))]


@VERSIONS
def test_open_speaks_what_the_firmware_speaks(version: int) -> None:
    dsp = ScriptedDsp(well(version << 16 | 0x0102))
    client = Client(dsp, now=dsp.now, seq=itertools.count(1))
    assert drive(client.open(bound=1)).version == version << 16 | 0x0102
    assert client.wire.major == version


@pytest.mark.parametrize(("word", "name"), [(0x010203, "1.2.3"), (0x040000, "4.0.0")])
def test_another_major_version(word: int, name: str) -> None:
    dsp = ScriptedDsp(well(word))
    client = Client(dsp, now=dsp.now, seq=itertools.count(1))
    with pytest.raises(DeviceLost, match=rf"version {name} .*speaks 2\.x and 3\.x"):
        drive(client.open(bound=1))


def test_replies_are_matched_by_their_number() -> None:
    dsp = ScriptedDsp(slow)
    client = connected(dsp)
    told(dsp)
    first, second = posted(client), posted(client, Opcode.DYN_UNLOAD)
    assert client.outstanding == 2
    one, two = usual(STATUS, first.seq), usual(UNLOAD, second.seq)
    told(dsp, build(one, 2), build(two, 2))
    posted(client)
    assert received(client) == [(first, one)]
    assert received(client) == [(second, two)]
    assert client.outstanding == 1
    assert asdict(client.strays) == NONE


def test_a_later_reply_proves_earlier_ones_lost() -> None:
    dsp = ScriptedDsp(slow)
    client = connected(dsp)
    told(dsp)
    lost = [posted(client), posted(client)]
    told(dsp, build(usual(UNLOAD, lost[1].seq + 1), 2))
    answered = posted(client, Opcode.DYN_UNLOAD)
    found = received(client)
    assert [request for request, _ in found] == [*lost, answered]
    assert [reply is None for _, reply in found] == [True, True, False]
    assert client.outstanding == 0


def test_each_stray_counts_once_and_is_dropped() -> None:
    dsp = ScriptedDsp(slow)
    client = connected(dsp)
    told(dsp)
    asked = posted(client)
    reply = build(usual(STATUS, asked.seq), 2)
    strays = {
        "unknown": build(usual(STATUS, 4_000_000), 2),
        "wrong_type": build(usual(PING, asked.seq), 2),
        "malformed": reply[:20],
    }
    expected, later = dict(NONE), asked
    for kind, message in strays.items():
        told(dsp, message)
        later = posted(client)
        assert received(client) == []
        expected[kind] += 1
        assert asdict(client.strays) == expected
    told(dsp, build(usual(STATUS, later.seq), 2), build(usual(STATUS, later.seq), 2), reply)
    posted(client)
    assert [request for request, _ in received(client)][-1] is later
    assert received(client) == received(client) == []
    assert asdict(client.strays) == {**expected, "duplicate": 2}


def test_a_refusal_of_another_kind_is_no_answer() -> None:
    """16 bytes with a status answer only what they name; those to INFER_LARGE name INFER."""
    dsp = ScriptedDsp(slow)
    client = connected(dsp)
    told(dsp, build(Done(0, -12, UNLOAD), 2))
    asked = client.post(Opcode.INFER_LARGE, requests.ping)
    assert asked is not None
    told(dsp, build(Done(asked.seq, -12, UNLOAD), 2), build(Done(asked.seq, -2, INFER), 2))
    posted(client)
    assert received(client) == received(client) == []
    assert [request for request, _ in received(client)] == [asked]
    assert (client.strays.unknown, client.strays.wrong_type) == (1, 1)


def test_an_answer_after_its_time_is_late() -> None:
    """Whoever opens a DSP that is busy for a while gets all answers at once."""

    def busy(opcode: int, seq: int, message: bytes) -> list[Answer]:
        ((_, reply),) = slow(opcode, seq, message)
        return [(max(3.5 - dsp.time, 0.0), reply)]

    dsp = ScriptedDsp(busy)
    client = Client(dsp, now=dsp.now, seq=itertools.count(1))
    assert drive(client.open(bound=15)).uptime_ms == 1000
    assert client.strays.late == 3
    assert [at for at, _ in dsp.sent] == [0, 1, 2, 3]


def test_a_ping_is_repeated_each_second_and_its_bound_kept() -> None:
    dsp = ScriptedDsp(silent)
    client = Client(dsp, now=dsp.now, seq=itertools.count(1))
    with pytest.raises(DeviceHung, match="PING was not answered"):
        drive(client.open(bound=4.5))
    assert [at for at, _ in dsp.sent] == [0, 1, 2, 3, 4]
    assert dsp.time == pytest.approx(4.5)


def test_a_link_without_buffers_is_tried_less_and_less() -> None:
    dsp = ScriptedDsp(slow)
    client = connected(dsp)
    begun, dsp.refused, dsp.offered = dsp.time, 9, []
    drive(client.status(bound=10))
    steps = [0, 1, 2, 4, 8, 16, 20, 20, 20, 20]
    offers = list(itertools.accumulate(steps))
    assert [round((at - begun) * 1000) for at in dsp.offered[:10]] == offers
    assert client.blocked_since is None
    assert client.next_offer == 0


def test_the_pauses_begin_anew_after_a_success() -> None:
    dsp = ScriptedDsp(slow)
    client = connected(dsp)
    for _ in range(2):
        dsp.offered, dsp.refused, begun = [], 3, dsp.time
        drive(client.status(bound=10))
        assert [round((at - begun) * 1000) for at in dsp.offered[:4]] == [0, 1, 3, 7]
        received(client)


def test_what_gets_through_ends_the_pauses() -> None:
    dsp = ScriptedDsp(slow)
    client = connected(dsp)
    dsp.refused = 1
    assert posted(client) is None
    assert client.blocked_since == dsp.time
    assert posted(client) is not None
    offers: tuple[float | None, float] = (client.blocked_since, client.next_offer)
    assert offers == (None, 0)


def test_after_a_message_it_is_tried_at_once() -> None:
    dsp = ScriptedDsp(slow)
    client = connected(dsp)
    told(dsp, build(usual(STATUS, 99), 2))
    posted(client)
    dsp.refused = 1
    assert posted(client) is None
    assert client.next_offer > dsp.time
    assert received(client) == []
    assert client.next_offer <= dsp.time
    assert client.blocked_since is None


def test_what_is_offered_much_later_is_not_blocked_since_then() -> None:
    """A message that was refused may be withdrawn; nobody tells the client."""
    dsp = ScriptedDsp(slow)
    client = connected(dsp)
    dsp.refused = 2
    assert posted(client) is None
    dsp.time += 100
    assert posted(client) is None
    assert client.blocked_since == dsp.time


def test_a_link_that_takes_nothing() -> None:
    dsp = ScriptedDsp(slow)
    client = connected(dsp)
    begun, dsp.refused = dsp.time, 1_000_000
    with pytest.raises(DeviceHung, match="GET_STATUS: the DSP takes no message"):
        drive(client.status(bound=2))
    assert 2 <= dsp.time - begun < 2.1


def test_numbers_wrap() -> None:
    dsp = ScriptedDsp(slow)
    client = connected(dsp, seq=0xFFFF_FFFE)
    drive(client.status(bound=1))
    numbers = [struct.unpack_from("<I", message, 4)[0] for _, message in dsp.sent]
    assert numbers == [0xFFFF_FFFE, 0xFFFF_FFFF, 0]


def dropping(opcode: int, times: int) -> Any:
    """Answer all but the first few of a kind."""
    left = [times]

    def script(call: int, seq: int, message: bytes) -> list[Answer]:
        if call == opcode and left[0]:
            left[0] -= 1
            return []
        return slow(call, seq, message)

    return script


def test_a_question_is_asked_again_when_its_answer_is_lost() -> None:
    dsp = ScriptedDsp(dropping(STATUS, ATTEMPTS - 1))
    client = connected(dsp)
    assert drive(client.status(bound=1)).uptime_ms == 1000
    assert dsp.calls.count(STATUS) == ATTEMPTS
    assert dsp.time < 0.1, "the PING behind it tells, not a time-out"


def test_but_not_for_ever() -> None:
    dsp = ScriptedDsp(dropping(STATUS, ATTEMPTS))
    client = connected(dsp)
    with pytest.raises(DeviceLost, match="the reply to GET_STATUS was lost"):
        drive(client.status(bound=1))
    assert dsp.calls.count(STATUS) == ATTEMPTS


def test_what_must_not_be_done_twice_is_sent_once() -> None:
    dsp = ScriptedDsp(dropping(LOAD, 1))
    client = connected(dsp)
    load = partial(requests.dyn_load, elf_size=5)
    with pytest.raises(DeviceLost, match="DYN_LOAD was lost"):
        drive(client.ask(Opcode.DYN_LOAD, load, Loaded, bound=1, attempts=1))
    assert dsp.calls.count(LOAD) == 1


def test_silence_is_a_hang() -> None:
    dsp = ScriptedDsp(slow)
    client = connected(dsp)
    dsp.script = silent
    begun = dsp.time
    with pytest.raises(DeviceHung, match="GET_STATUS was not answered in time"):
        drive(client.status(bound=2))
    assert dsp.time - begun == pytest.approx(2)


@VERSIONS
@pytest.mark.parametrize(
    ("status", "name"), [(-12, "HANDLE"), (-2, "INVALID"), (-99, "unknown status"), (5, "")]
)
def test_a_refusal_has_the_firmwares_status_and_no_errno(version: int, status: int, name: str) -> None:
    dsp = ScriptedDsp(well(version << 16))
    client = connected(dsp)

    def script(opcode: int, seq: int, _message: bytes) -> list[Answer]:
        return [(0.0, build(usual(opcode, seq) if opcode == PING else Done(seq, status, opcode), version))]

    dsp.script = script
    with pytest.raises(DspRefusal) as caught:
        drive(client.ask(Opcode.DYN_UNLOAD, partial(requests.dyn_unload, handle=1), Done, bound=1))
    assert (caught.value.status, caught.value.call, caught.value.oom) == (status, "DYN_UNLOAD", None)
    assert name in str(caught.value)
    assert f"({status})" in str(caught.value)
    assert not any(errno in str(caught.value) for errno in ("ENO", "memory", "EIN"))


@VERSIONS
def test_a_lack_of_memory_tells_how_much(version: int) -> None:
    dsp = ScriptedDsp(well(version << 16))
    client = connected(dsp)
    lacking = OutOfMemory(70, 20, 100)

    def script(opcode: int, seq: int, _message: bytes) -> list[Answer]:
        reply = Loaded(seq, -3, 0, lacking) if opcode == LOAD else usual(opcode, seq)
        return [(0.0, build(reply, version))]

    dsp.script = script
    with pytest.raises(DspRefusal, match="70 bytes wanted, 20 of 100 free") as caught:
        drive(client.ask(Opcode.DYN_LOAD, partial(requests.dyn_load, elf_size=5), Loaded, bound=1))
    assert caught.value.oom == lacking


def test_a_refusal_tells_stale_numbers_only_where_they_count() -> None:
    """A failed reply may carry what the one before had."""
    dsp = ScriptedDsp(slow)
    client = connected(dsp)

    def script(opcode: int, seq: int, _message: bytes) -> list[Answer]:
        stale = Loaded(seq, -9, 7, OutOfMemory(70, 20, 100))
        return [(0.0, build(stale if opcode == LOAD else usual(opcode, seq), 2))]

    dsp.script = script
    with pytest.raises(DspRefusal, match=r"LOAD \(-9\)$") as caught:
        drive(client.ask(Opcode.DYN_LOAD, partial(requests.dyn_load, elf_size=5), Loaded, bound=1))
    assert caught.value.oom is None


def test_a_result_that_does_not_fit_tells_its_size() -> None:
    dsp = ScriptedDsp(well(0x030000))
    client = connected(dsp)

    def script(opcode: int, seq: int, _message: bytes) -> list[Answer]:
        large = Inferred(seq, -7, 0, 0, 0, (), None, 0, NOTHING, 4096)
        return [(0.0, build(large if opcode == INFER else usual(opcode, seq), 3))]

    dsp.script = script
    with pytest.raises(DspRefusal) as caught:
        drive(client.ask(Opcode.INFER, lambda seq: struct.pack("<3Ii", INFER, seq, 16, 0), Inferred, bound=1))
    assert caught.value.required == 4096


def test_nothing_is_sent_before_the_connection_and_closing_is_idempotent() -> None:
    dsp = ScriptedDsp(slow)
    client = Client(dsp, now=dsp.now, seq=itertools.count(1))
    with pytest.raises(DeviceLost, match="not connected"):
        posted(client)
    client.wake()
    client.close()
    client.close()
    assert (dsp.sent, dsp.closed, dsp.hung_up) == ([], 2, 0)
    client = connected(dsp)
    client.close()
    assert (dsp.opened, dsp.hung_up, dsp.closed) == (1, 1, 3)


def test_a_wake_ends_a_wait() -> None:
    dsp = ScriptedDsp(slow)
    client = connected(dsp)
    client.wake()
    begun = dsp.time
    assert drive(client.receive(10)) == []
    assert dsp.time == begun


def test_when_the_dsp_was_heard_last() -> None:
    dsp = ScriptedDsp(slow)
    client = connected(dsp)
    heard = client.heard
    assert heard == dsp.time
    told(dsp, build(usual(STATUS, 777), 2))
    posted(client)
    dsp.time += 5
    assert received(client) == []
    assert client.heard == heard, "a stray says nothing of the DSP"
