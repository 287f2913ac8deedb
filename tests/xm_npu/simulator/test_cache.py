"""What host and NPU see of one memory: each of the three mistakes, and the ways that are right."""

from __future__ import annotations

import numpy as np

from repertory.models.spec import Array
from repertory.transports.xm_npu.simulator.block import Block
from repertory.transports.xm_npu.simulator.faults import Faults
from repertory.transports.xm_npu.simulator.memory import Mmz
from repertory.transports.xm_npu.simulator.parameters import Zone

SIZE = 4096
RESULTS = np.arange(1, 129, dtype=np.uint8)


def mapped(notes: list[str] | None = None, *, cached: bool = True) -> tuple[Mmz, Block, memoryview]:
    mmz = Mmz((Zone(),), Faults(), (notes if notes is not None else []).append)
    block = mmz.alloc(b"", b"buffer", SIZE, 1)
    return mmz, mmz.map(block.phys, SIZE, cached=cached), block.view(0, SIZE)


def device(mmz: Mmz, block: Block, size: int = 128) -> Array:
    found = mmz.read(block.phys, size)
    assert found is not None
    return found


def run(mmz: Mmz, block: Block) -> None:
    mmz.run_begins(block.phys, RESULTS.size)
    mmz.write_results([(block.phys, RESULTS)])


def test_the_npu_reads_old_bytes_without_a_flush() -> None:
    mmz, block, view = mapped()
    before = device(mmz, block).tobytes()
    view[:128] = bytes(128)
    assert device(mmz, block).tobytes() == before != bytes(128)
    mmz.flush(block.phys + 70, 1, offset=70)
    assert device(mmz, block).tobytes() == before[:64] + bytes(64)
    mmz.flush(block.phys, 128, offset=0)
    assert device(mmz, block).tobytes() == bytes(128)


def test_the_host_reads_old_bytes_where_it_had_not_invalidated() -> None:
    mmz, block, view = mapped()
    before = view[:128].tobytes()
    run(mmz, block)
    assert view[:128].tobytes() == before != RESULTS.tobytes()


def test_a_flush_before_the_run_lets_results_be_seen_once() -> None:
    notes = list[str]()
    mmz, block, view = mapped(notes)
    for _ in range(2):
        mmz.flush(block.phys, 128, offset=0)
        run(mmz, block)
        assert view[:128].tobytes() == RESULTS.tobytes()
    mmz.run_begins(block.phys, 128)
    mmz.write_results([(block.phys, RESULTS[::-1])])
    assert view[:128].tobytes() == RESULTS.tobytes(), "the host has read these lines, and holds them"
    assert notes == []


def test_tensors_of_one_run_may_share_a_line() -> None:
    mmz, block, view = mapped()
    mmz.flush(block.phys, 128, offset=0)
    mmz.write_results([(block.phys, RESULTS[:12]), (block.phys + 16, RESULTS[16:28])])
    assert view[:12].tobytes() + view[16:28].tobytes() == RESULTS[:12].tobytes() + RESULTS[16:28].tobytes()


def test_dirty_lines_flushed_after_a_run_take_the_place_of_its_results() -> None:
    notes = list[str]()
    mmz, block, view = mapped(notes)
    view[:64] = bytes(64)
    run(mmz, block)
    mmz.flush(block.phys, 128, offset=0)
    assert view[:128].tobytes() == bytes(64) + RESULTS[64:].tobytes() == device(mmz, block).tobytes()
    assert any("over results" in note for note in notes)


def test_a_line_that_is_written_after_its_flush_is_held_again() -> None:
    mmz, block, view = mapped()
    mmz.flush(block.phys, 128, offset=0)
    view[3] = 77
    run(mmz, block)
    assert view[3] == 77
    assert view[64:128].tobytes() == RESULTS[64:].tobytes()


def test_a_flush_only_after_a_run_is_noted_though_it_shows_the_results() -> None:
    notes = list[str]()
    mmz, block, view = mapped(notes)
    run(mmz, block)
    mmz.flush(block.phys, 128, offset=0)
    assert view[:128].tobytes() == RESULTS.tobytes()
    assert len(notes) == 1
    assert "after a run" in notes[0]


def test_two_flushes_between_runs_are_noted() -> None:
    notes = list[str]()
    mmz, block, _ = mapped(notes)
    for flushes in (1, 1, 2):
        for _ in range(flushes):
            mmz.flush(block.phys, 128, offset=0)
        run(mmz, block)
    assert len(notes) == 1
    assert "twice" in notes[0]


def test_an_uncached_mapping_is_the_memory_itself() -> None:
    notes = list[str]()
    mmz, block, view = mapped(notes, cached=False)
    view[:3] = b"abc"
    assert device(mmz, block, 3).tobytes() == b"abc"
    run(mmz, block)
    assert view[:128].tobytes() == RESULTS.tobytes()
    mmz.flush(block.phys, 128, offset=0)
    assert notes == []


def test_an_unmap_writes_back_and_fresh_memory_is_garbage() -> None:
    mmz, block, view = mapped()
    assert 0 not in view.tobytes()
    view[:3] = b"abc"
    mmz.unmap(block)
    assert device(mmz, block, 3).tobytes() == b"abc"
    other = mmz.alloc(b"", b"", SIZE, 1)
    assert device(mmz, other).tobytes() != device(mmz, block).tobytes()
