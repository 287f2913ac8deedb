"""Swaps and moves over the real binding: exactly the calls of the vendor's examples, in their order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from repertory.models.errors import ArtifactError, DeviceBusy, DeviceError
from repertory.models.program import Artifact, Program
from repertory.transports.memx.binding import CtypesLibmemx
from repertory.transports.memx.constants import CONTEXTS, Status
from repertory.transports.memx.control import Control
from repertory.transports.memx.program import prepare_dfp
from repertory.transports.world import drive

from .files import Net, dfp
from .stub import Stub

WHOLE, MODEL = 0x83, 0x82  # from a buffer
LOOKING = ("memx_get_ifmap_size", "memx_get_ofmap_size", "memx_get_feature")


class Groups:
    """Two device groups over one library, and what each step called."""

    def __init__(self, stub: Stub) -> None:
        self.stub = stub
        stub.answer("memx_operation_get_device_count", 0, 2)
        stub.answer("memx_get_total_chip_count", 0, 4)
        stub.answer("memx_get_ifmap_size", 0, 4, 6, 1, 3, 5)
        stub.answer("memx_get_ofmap_size", 0, 4, 6, 1, 2, 5)
        self.library = CtypesLibmemx(stub.path)
        self.groups = [Control(self.library, index, queue=9) for index in range(2)]
        for group in self.groups:
            drive(group.open())
        stub.calls()

    def swap(self, program: Program, group: int = 0) -> tuple[int, list[str]]:
        """Run a program; return its model id and the calls, without those that only look."""
        model_id = drive(self.groups[group].swap(program))
        return model_id, self.calls()

    def calls(self) -> list[str]:
        return [_short(call) for call in self.stub.calls() if not call.startswith(LOOKING)]


def _short(call: str) -> str:
    """Leave out a download's content."""
    name, *arguments = call.split()
    return " ".join([name, arguments[0], *arguments[2:]]) if name == "memx_download_model" else call


def _opened(model_id: int, group: int = 0) -> list[str]:
    return [
        f"memx_open {model_id} {group} 31",
        f"memx_set_ifmap_queue_size {model_id} 9",
        f"memx_set_ofmap_queue_size {model_id} 9",
    ]


def program(*nets: Net, network: str | None = None, chips: int = 4) -> Program:
    artifact = Artifact("file", dfp(*nets, chips=chips, twins=False), network)
    return prepare_dfp(artifact, simulated=False, chips=4)


A, B, C = (program(Net(name, seed=seed, outputs=1)) for seed, name in enumerate("abc"))
X, Y = (
    program(
        *(Net(name, seed=seed, configuration=seed, outputs=1) for seed, name in enumerate("xy")), network=name
    )
    for name in "xy"
)


@pytest.fixture(params=["reconfigure", "no reconfigure"])
def reconfigure(request: pytest.FixtureRequest) -> bool:
    exported: bool = request.param == "reconfigure"
    return exported


@pytest.fixture
def groups(reconfigure: bool, tmp_path: Path) -> Iterator[Groups]:
    """Two groups; whatever a test does, all that is opened is closed in the end, once."""
    stub = Stub(tmp_path, without=[] if reconfigure else ["memx_reconfigure"])
    made = Groups(stub)
    opened: list[str] = []
    take = stub.calls

    def keep() -> list[str]:
        calls = take()
        opened.extend(call for call in calls if call.startswith(("memx_open ", "memx_close ")))
        return calls

    stub.calls = keep  # type: ignore[method-assign]
    yield made
    for group in made.groups:
        drive(group.close())
    assert keep()[-1].startswith("memx_unlock")
    _check_balance(opened)


def _check_balance(calls: list[str]) -> None:
    is_open: set[str] = set()
    for call in calls:
        name, model_id, *_ = call.split()
        assert (model_id in is_open) == (name == "memx_close"), call
        is_open ^= {model_id}
    assert not is_open


def test_a_first_swap(groups: Groups) -> None:
    a, calls = groups.swap(A)
    assert calls == [
        *_opened(a),
        "memx_config_mpu_group 0 0",
        f"memx_download_model {a} 0 {WHOLE}",
        f"memx_set_stream_enable {a} 0",
    ]


def test_swaps_on_one_group(groups: Groups, reconfigure: bool) -> None:
    a, _ = groups.swap(A)
    b, first = groups.swap(B)
    assert first == [
        f"memx_set_stream_disable {a} 1",
        *_opened(b),
        f"memx_download_model {b} 0 {WHOLE}",
        f"memx_set_stream_enable {b} 0",
    ]
    for program, old, new in ((A, b, a), (B, a, b), (A, b, a)):
        assert groups.swap(program) == (
            new,
            [
                f"memx_set_stream_disable {old} 1",
                *([f"memx_reconfigure {new} 0"] if reconfigure else []),
                f"memx_download_model {new} 0 {WHOLE}",
                f"memx_set_stream_enable {new} 0",
            ],
        )


def test_the_context_that_was_downloaded_to_last_is_bound_anew(groups: Groups, reconfigure: bool) -> None:
    a, _ = groups.swap(A)
    bind = [f"memx_reconfigure {a} 0"] if reconfigure else [f"memx_close {a}", *_opened(a)]
    assert groups.swap(A) == (
        a,
        [
            f"memx_set_stream_disable {a} 1",
            *bind,
            f"memx_download_model {a} 0 {WHOLE}",
            f"memx_set_stream_enable {a} 0",
        ],
    )


def test_networks_of_one_file(groups: Groups) -> None:
    x, first = groups.swap(X)
    assert f"memx_download_model {x} 0 {WHOLE}" in first
    y, second = groups.swap(Y)
    assert second == [
        f"memx_set_stream_disable {x} 1",
        *_opened(y),
        f"memx_download_model {y} 1 {MODEL}",
        f"memx_set_stream_enable {y} 0",
    ]
    for program, old, new, index in ((X, y, x, 0), (Y, x, y, 1)):
        assert groups.swap(program)[1] == [
            f"memx_set_stream_disable {old} 1",
            f"memx_download_model {new} {index} {MODEL}",
            f"memx_set_stream_enable {new} 0",
        ]


def test_a_move_to_another_group(groups: Groups, reconfigure: bool) -> None:
    a, _ = groups.swap(A)
    groups.swap(B)
    bind = [f"memx_reconfigure {a} 1"] if reconfigure else [f"memx_close {a}", *_opened(a, 1)]
    assert groups.swap(A, group=1) == (
        a,
        [
            *bind,
            "memx_config_mpu_group 1 0",
            f"memx_download_model {a} 0 {WHOLE}",
            f"memx_set_stream_enable {a} 0",
        ],
    )
    c, _ = groups.swap(C, group=1)
    bind = [f"memx_reconfigure {a} 0"] if reconfigure else [f"memx_close {a}", *_opened(a)]
    back = groups.swap(A)
    assert back[0] == a
    assert back[1][1:] == [*bind, f"memx_download_model {a} 0 {WHOLE}", f"memx_set_stream_enable {a} 0"]
    assert c not in (a, back[0])


def test_a_program_that_runs_on_one_group_gets_a_second_context_on_another(groups: Groups) -> None:
    a, _ = groups.swap(A)
    second, calls = groups.swap(A, group=1)
    assert second != a
    assert calls[:3] == _opened(second, 1)


def test_a_reconfigure_is_always_followed_by_a_download(groups: Groups, reconfigure: bool) -> None:
    calls: list[str] = []
    for program, group in ((A, 0), (B, 1), (A, 0), (B, 0), (A, 1), (C, 0), (X, 0), (Y, 0), (X, 0), (A, 0)):
        calls += groups.swap(program, group)[1]
    assert any(call.startswith("memx_reconfigure") for call in calls) is reconfigure
    for before, call in pairwise(calls):
        if before.startswith("memx_reconfigure"):
            model_id = before.split()[1]
            assert call.startswith((f"memx_download_model {model_id} ", "memx_config_mpu_group"))


def test_the_33rd_context_is_the_one_that_was_idle_longest(groups: Groups) -> None:
    programs = [program(Net(f"n{seed}", seed=seed, outputs=1)) for seed in range(CONTEXTS + 1)]
    ids = [groups.swap(each)[0] for each in programs[:-1]]
    assert sorted(ids) == list(range(CONTEXTS))
    last, calls = groups.swap(programs[-1])
    assert last == ids[0]
    assert calls[1:5] == [f"memx_close {last}", *_opened(last)]
    again, calls = groups.swap(programs[0])
    assert again == ids[1]
    assert f"memx_download_model {again} 0 {WHOLE}" in calls


@pytest.mark.parametrize(
    ("status", "error"),
    [(Status.DFP_BAD_CONTENT, ArtifactError), (Status.DOWNLOAD_FAILED, DeviceError)],
)
def test_a_retry_after_a_failed_download_downloads(
    groups: Groups, reconfigure: bool, status: Status, error: type[Exception]
) -> None:
    groups.stub.answer("memx_download_model", status)
    with pytest.raises(error, match=r"memx_download_model: .*0x130"):
        groups.swap(A)
    groups.calls()
    groups.stub.answer("memx_download_model", 0)
    a, calls = groups.swap(A)
    bind = [f"memx_reconfigure {a} 0"] if reconfigure else [f"memx_close {a}", *_opened(a)]
    if error is ArtifactError:
        bind = _opened(a)  # it was closed at once, for the file is at fault
    assert calls[: len(bind)] == bind
    assert calls[-2:] == [f"memx_download_model {a} 0 {WHOLE}", f"memx_set_stream_enable {a} 0"]


def test_a_download_that_did_nothing_is_noticed(groups: Groups) -> None:
    groups.stub.answer("memx_get_ofmap_size", 0, 4, 6, 1, 7, 5)
    with pytest.raises(DeviceError, match="the download did nothing"):
        groups.swap(A)
    groups.stub.answer("memx_get_ofmap_size", 0, 4, 6, 1, 2, 5)
    groups.stub.answer("memx_get_ifmap_size", Status.SIZE_UNKNOWN)
    with pytest.raises(DeviceError, match="size unknown"):
        groups.swap(B)
    assert not any(call.startswith("memx_set_stream_enable") for call in groups.calls())


def test_an_admin_channel_that_is_silent_after_a_download_is_noticed(groups: Groups) -> None:
    groups.stub.answer("memx_get_feature", Status.ADMIN_TIMEOUT)
    with pytest.raises(DeviceError, match=r"memx_get_feature HW_INFO: admin timeout"):
        groups.swap(A)


def test_freeing_closes_what_the_programs_had(groups: Groups) -> None:
    a, _ = groups.swap(A)
    b, _ = groups.swap(B)
    drive(groups.groups[0].free([B]))
    assert groups.calls() == [f"memx_set_stream_disable {b} 1", f"memx_close {b}"]
    drive(groups.groups[1].free([A, B]))
    assert groups.calls() == []
    drive(groups.groups[0].free([A, C]))
    assert groups.calls() == [f"memx_close {a}"]


def test_other_chips_are_configured_and_bring_the_weights_again(groups: Groups) -> None:
    groups.swap(X)
    two = program(Net("two", outputs=1), chips=2)
    assert "memx_config_mpu_group 0 4" in groups.swap(two)[1]
    y, calls = groups.swap(Y)
    assert "memx_config_mpu_group 0 0" in calls
    assert f"memx_download_model {y} 1 {WHOLE}" in calls


@pytest.mark.parametrize("status", [Status.GROUP_IN_USE, Status.LOCK_FILE_UNUSABLE])
def test_a_failed_trylock_is_followed_by_an_unlock(groups: Groups, status: Status) -> None:
    groups.stub.answer("memx_trylock", status)
    other = Control(CtypesLibmemx(groups.stub.path), 1, queue=2)
    with pytest.raises(DeviceBusy if status == Status.GROUP_IN_USE else DeviceError, match=r"lock"):
        drive(other.open())
    assert groups.calls() == ["memx_operation_get_device_count", "memx_trylock 1", "memx_unlock 1"]
    groups.stub.answer("memx_trylock", 0)


@pytest.mark.parametrize("call", ["memx_set_ifmap_queue_size", "memx_set_stream_enable"])
def test_a_call_that_fails_leaves_nothing_behind(groups: Groups, call: str) -> None:
    groups.stub.answer(call, Status.GENERIC_FAILURE)
    with pytest.raises(DeviceError, match=f"{call}: generic failure") as caught:
        groups.swap(A)
    assert (caught.value.call, caught.value.status) == (call, Status.GENERIC_FAILURE)
    groups.stub.answer(call, 0)
    groups.swap(A)


def test_a_context_that_cannot_be_opened_is_not_closed(tmp_path: Path) -> None:
    groups = Groups(Stub(tmp_path))
    groups.stub.answer("memx_open", Status.TRANSPORT_OPEN_FAILED)
    with pytest.raises(DeviceError, match="memx_open: transport open failed"):
        groups.swap(A)
    groups.stub.answer("memx_open", 0)
    drive(groups.groups[0].close())
    assert groups.calls() == ["memx_open 0 0 31", "memx_unlock 0"]
    assert groups.swap(A, group=1)[0] == 0


def test_every_group_config_that_a_file_can_ask_for(tmp_path: Path) -> None:
    stub = Stub(tmp_path)
    groups = Groups(stub)
    found = {}
    for chips in (1, 2, 3, 4, 8, 12, 16):
        artifact = Artifact("file", dfp(Net(f"n{chips}", outputs=1), chips=chips, twins=False))
        _, calls = groups.swap(prepare_dfp(artifact, simulated=False, chips=16))
        (found[chips],) = [call for call in calls if call.startswith("memx_config_mpu_group")]
    wanted = {4: 0, 1: 2, 3: 3, 2: 4, 8: 5, 12: 6, 16: 7}
    assert found == {chips: f"memx_config_mpu_group 0 {config}" for chips, config in wanted.items()}
