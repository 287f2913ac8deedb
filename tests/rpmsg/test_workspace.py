"""Where things come to lie in the shared memory, by the addresses that the firmware knows."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repertory.models.errors import ArtifactError, DeviceBusy, DeviceLost
from repertory.transports.rpmsg.memory import Window
from repertory.transports.rpmsg.workspace import SINGLE, FixedWorkspace, Need, PurposeWorkspace, Workspace
from tests.rpmsg.scripted import ScriptedDsp, silent

MIB = 1 << 20
PAGE = 4096
STAGING, RESULT, END = 0xC0000000, 0xDE000000, 0xE0000000
STAGING_END = STAGING + 468 * MIB
PRINTF = 64 << 10

Make = Callable[[ScriptedDsp], Workspace]


def fixed(dsp: ScriptedDsp) -> FixedWorkspace:
    return FixedWorkspace(dsp, FixedWorkspace.depths)


def by_purpose(dsp: ScriptedDsp) -> PurposeWorkspace:
    return PurposeWorkspace(dsp, PurposeWorkspace.depths)


def fixed_single(dsp: ScriptedDsp) -> FixedWorkspace:
    return FixedWorkspace(dsp, SINGLE)


def by_purpose_single(dsp: ScriptedDsp) -> PurposeWorkspace:
    return PurposeWorkspace(dsp, SINGLE)


BOTH = pytest.mark.parametrize("make", [fixed, by_purpose], ids=["v2", "v3"])


def memory() -> ScriptedDsp:
    return ScriptedDsp(silent)


def span(window: Window) -> tuple[int, int]:
    return window.address, window.address + window.size


def windows(workspace: Workspace) -> list[tuple[int, int]]:
    return [span(window) for window in (workspace.module, *workspace.slots, *workspace.areas)]


def test_version_2_knows_its_addresses() -> None:
    dsp = memory()
    workspace = fixed(dsp)
    workspace.arrange(Need(10_000, 100, 5000))
    assert workspace.split
    assert span(workspace.module) == (STAGING, STAGING + 3 * PAGE)
    assert [span(slot) for slot in workspace.slots] == [
        (STAGING + 3 * PAGE, STAGING + 4 * PAGE),
        (STAGING + 4 * PAGE, STAGING + 5 * PAGE),
    ]
    assert [span(area) for area in workspace.areas] == [(RESULT, RESULT + 2 * PAGE)]
    assert workspace.printf is None
    assert sum(buffer.size for buffer in dsp.buffers) == 512 * MIB, "nobody else gets in"
    assert all(window.offset == 0 for window in (workspace.module, *workspace.slots, *workspace.areas))


def test_where_buffers_lie_elsewhere_there_is_one(caplog: pytest.LogCaptureFixture) -> None:
    dsp = memory()
    dsp.first_fit = False
    workspace = fixed(dsp)
    for need in (Need(10_000, 100, 5000), Need(20_000, 100, 5000)):
        workspace.arrange(need)
        assert not workspace.split
        assert [buffer.size for buffer in dsp.buffers] == [512 * MIB]
        assert workspace.module.address == STAGING
        assert workspace.slots[0].address == STAGING + workspace.module.size
        assert workspace.areas[0].address == RESULT
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "scripted: buffers do not lie where the firmware expects them: one of 512 MiB" in record.message


def test_version_3_keeps_staging_and_gives_each_purpose_a_buffer() -> None:
    dsp = memory()
    workspace = by_purpose(dsp)
    assert workspace.printf is not None
    assert span(workspace.printf) == (STAGING + 480 * MIB, STAGING + 480 * MIB + PRINTF)
    assert workspace.printf.buffer in dsp.buffers
    assert len(dsp.buffers) == 2
    assert dsp.buffers[0].address == STAGING
    workspace.arrange(Need(10_000, 100, 5000))
    assert span(workspace.module) == (STAGING, STAGING + 3 * PAGE)
    assert [slot.size for slot in workspace.slots] == [PAGE] * 3
    assert [area.size for area in workspace.areas] == [2 * PAGE] * 2
    assert min(window.address for window in (*workspace.slots, *workspace.areas)) > workspace.printf.address


@BOTH
def test_it_only_grows(make: Make) -> None:
    dsp = memory()
    workspace = make(dsp)
    workspace.arrange(Need(100_000, 5000, 5000))
    before, buffers = windows(workspace), list(dsp.buffers)
    for smaller in (Need(1, 1, 1), Need(100_000, 1, 5000), Need(50, 5000, 8192)):
        workspace.arrange(smaller)
        assert (windows(workspace), dsp.buffers) == (before, buffers)
    workspace.arrange(Need(1, 9000, 1))
    assert [slot.size for slot in workspace.slots] == [3 * PAGE] * len(workspace.slots)
    assert workspace.module.size == 25 * PAGE
    assert [area.size for area in workspace.areas] == [2 * PAGE] * len(workspace.areas)


@BOTH
def test_what_was_needed_once_may_go_where_the_new_would_not_fit_beside_it(make: Make) -> None:
    dsp = memory()
    workspace = make(dsp)
    workspace.arrange(Need(PAGE, 10 * MIB, PAGE) if make is by_purpose else Need(PAGE, 200 * MIB, PAGE))
    workspace.arrange(Need(PAGE, PAGE, 15 * MIB) if make is by_purpose else Need(400 * MIB, PAGE, PAGE))
    assert workspace.slots[0].size == PAGE


@BOTH
@pytest.mark.parametrize(
    ("need", "text"),
    [
        (Need(468 * MIB + 1, 1, 1), "bytes of module .*do not fit into 490733568 of staging"),
        (Need(1, 1, 32 * MIB), r"outputs do not fit into \d+"),
    ],
)
def test_what_never_fits(make: Make, need: Need, text: str) -> None:
    dsp = memory()
    workspace = make(dsp)
    workspace.arrange(Need(1, 1, 1))
    before, buffers = windows(workspace), list(dsp.buffers)
    with pytest.raises(ArtifactError, match=text):
        workspace.arrange(need)
    assert (windows(workspace), dsp.buffers) == (before, buffers)


@pytest.mark.parametrize(
    ("make", "fits", "not_fits"),
    [
        (fixed_single, Need(468 * MIB - PAGE, 1, 1), Need(468 * MIB - PAGE, PAGE + 1, 1)),
        (fixed, Need(1, 1, 32 * MIB - PRINTF), Need(1, 1, 32 * MIB - PRINTF + 1)),
        (by_purpose, Need(468 * MIB, 1, 1), Need(468 * MIB + 1, 1, 1)),
        (by_purpose_single, Need(1, 31 * MIB, MIB - PRINTF), Need(1, 31 * MIB, MIB - PRINTF + 1)),
    ],
)
def test_the_last_byte(make: Make, fits: Need, not_fits: Need) -> None:
    workspace = make(memory())
    with pytest.raises(ArtifactError, match="do not fit"):
        workspace.arrange(not_fits)
    workspace.arrange(fits)
    assert workspace.module.size >= fits.module


@pytest.mark.parametrize(
    ("make", "need", "depth"),
    [
        (fixed, Need(1, 100 * MIB, 1), (2, 1)),
        (fixed, Need(1, 300 * MIB, 1), (1, 1)),
        (by_purpose, Need(1, 4 * MIB, 4 * MIB), (3, 2)),
        (by_purpose, Need(1, 8 * MIB, 4 * MIB), (2, 2)),
        (by_purpose, Need(1, 8 * MIB, 8 * MIB), (2, 1)),
        (by_purpose, Need(1, 15 * MIB, 15 * MIB), (1, 1)),
    ],
)
def test_large_models_have_fewer_places(make: Make, need: Need, depth: tuple[int, int]) -> None:
    workspace = make(memory())
    assert workspace.excess(need) == ""
    for _ in range(2):
        workspace.arrange(need)
        assert (len(workspace.slots), len(workspace.areas)) == depth
        assert {window.size for window in workspace.slots} == {need.inputs}


def test_version_3_in_one_buffer(caplog: pytest.LogCaptureFixture) -> None:
    dsp = memory()
    dsp.first_fit = False
    workspace = by_purpose(dsp)
    for need in (Need(10_000, 100, 5000), Need(20_000, 100, 5000)):
        workspace.arrange(need)
        assert not workspace.split
        assert [buffer.size for buffer in dsp.buffers] == [512 * MIB]
        assert workspace.module.address == STAGING
        assert workspace.printf is not None
        assert span(workspace.printf)[1] == workspace.slots[0].address
    workspace.close()
    assert dsp.buffers == []
    assert len(caplog.records) == 1


@pytest.mark.parametrize("taken", [PAGE, 32 * MIB, 490 * MIB])
def test_somebody_else_has_memory(taken: int) -> None:
    """A client of version 2 takes the whole carveout; whoever comes then gets nothing and keeps nothing."""
    dsp = memory()
    dsp.taken = taken
    with pytest.raises(DeviceBusy):
        fixed(dsp).arrange(Need(1, 1, 1))
    assert dsp.buffers == []
    with pytest.raises(DeviceBusy):
        by_purpose(dsp)
    assert dsp.buffers == []


@BOTH
def test_after_a_failure_it_can_be_tried_again(make: Make) -> None:
    dsp = memory()
    workspace = make(dsp)
    dsp.taken, dsp.base = (512 * MIB, dsp.base) if make is fixed else (0, dsp.base + 1)
    with pytest.raises((DeviceBusy, DeviceLost)):
        workspace.arrange(Need(1, 1, 1))
    assert dsp.buffers == ([] if workspace.printf is None else [workspace.printf.buffer])
    dsp.taken, dsp.base = 0, STAGING
    workspace.arrange(Need(1, 1, 1))
    assert workspace.module.address == STAGING


def test_another_base() -> None:
    dsp = memory()
    dsp.base = 0xA0000000
    with pytest.raises(DeviceLost, match=r"carveout is at 0xa0000000 .* expects 0xc0000000"):
        fixed(dsp).arrange(Need(1, 1, 1))
    assert dsp.buffers == []


@BOTH
def test_closing_gives_all_back(make: Make) -> None:
    dsp = memory()
    workspace = make(dsp)
    workspace.arrange(Need(1, 1, 1))
    workspace.close()
    workspace.close()
    assert dsp.buffers == []
    assert workspace.slots == workspace.areas == ()


needs = st.builds(
    Need,
    st.integers(0, 500 * MIB),
    st.one_of(st.integers(0, 50_000), st.integers(0, 40 * MIB)),
    st.one_of(st.integers(0, 50_000), st.integers(0, 40 * MIB)),
)


@given(st.lists(needs, min_size=1, max_size=6), st.booleans(), st.sampled_from([fixed, by_purpose]))
def test_windows_never_overlap(wanted: list[Need], first_fit: bool, make: Any) -> None:
    dsp = memory()
    dsp.first_fit = first_fit
    workspace: Workspace = make(dsp)
    for need in wanted:
        try:
            workspace.arrange(need)
        except ArtifactError:
            continue
        spans = sorted(windows(workspace))
        if workspace.printf is not None:
            spans = sorted([*spans, span(workspace.printf)])
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
        assert all(start % 64 == 0 for start, _ in spans)
        assert workspace.module.address == STAGING
        assert workspace.module.size >= need.module
        assert all(slot.size >= need.inputs for slot in workspace.slots)
        assert all(area.size >= need.outputs for area in workspace.areas)
        assert span(workspace.module)[1] <= STAGING_END
        assert spans[-1][1] <= END
        if make is fixed:
            assert max(span(slot)[1] for slot in workspace.slots) <= STAGING_END
            assert workspace.areas[0].address == RESULT
            assert span(workspace.areas[0])[1] <= END - PRINTF
    workspace.close()
    assert dsp.buffers == []
