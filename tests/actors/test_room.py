"""What must go so that a program fits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from repertory.actors.policy import ContextState, Entry, GroupState, used
from repertory.actors.room import least_valuable, making_room, room_told
from repertory.models.program import Program

MB = 2**20


def _entry(
    name: str, size: int, *, scratch: int = 0, waiting: int = 0, in_flight: int = 0, served: float = 0.0
) -> Entry:
    program = Program(f"key of {name}", name, (), footprint=size, scratch=scratch, image=None)
    return Entry(ContextState(name, waiting), program, in_flight=in_flight, served=served)


def _group(*entries: Entry, capacity: int = 8, memory: int | None = None, pinned: str = "") -> GroupState:
    """Return a group on which all entries are resident."""
    residents = {entry.program.key: entry.program for entry in entries}
    keys = {f"key of {name}" for name in pinned}
    state = GroupState("group", capacity, memory, entries=list(entries), residents=residents, pinned=keys)
    state.by_program = {entry.program.key: [entry] for entry in entries}
    return state


def _evicted(state: GroupState, entry: Entry) -> str | None:
    """Return the names of what makes room."""
    evict = making_room(state, entry.program)
    return None if evict is None else "".join(program.name for program in evict)


def test_idle_programs_go_first_and_of_them_the_least_recently_served() -> None:
    state = _group(
        _entry("a", 1, waiting=1, served=1),
        _entry("b", 1, in_flight=1, served=2),
        _entry("c", 1, served=4),
        _entry("d", 1, served=3),
    )
    assert "".join(program.name for program in least_valuable(state)) == "dcba"
    gone = state.entries.pop()  # nobody uses d any more
    gone.served = 99
    assert least_valuable(state)[0].name == "d"


def test_no_more_goes_than_must() -> None:
    small, large = _entry("s", 1, served=1), _entry("l", 6, served=2)
    assert _evicted(_group(small, large, memory=8), _entry("n", 1)) == ""
    assert _evicted(_group(small, large, memory=8), _entry("n", 2)) == "s"
    assert _evicted(_group(small, large, memory=8), _entry("n", 7)) == "l"
    assert _evicted(_group(small, large, memory=8), _entry("n", 8)) == "sl"
    assert _evicted(_group(small, large, memory=8), _entry("n", 9)) is None
    assert _evicted(_group(small, large, capacity=2), _entry("n", 9)) == "s"
    assert _evicted(_group(small, large, memory=8, pinned="l"), _entry("n", 3)) is None


def test_scratch_is_shared() -> None:
    state = _group(_entry("a", 2, scratch=3), _entry("b", 2, scratch=1), memory=8)
    assert used(state.residents.values()) == 7
    assert _evicted(state, _entry("n", 1, scratch=3)) == ""
    assert _evicted(state, _entry("n", 1, scratch=4)) == "a"


def test_room_is_told_with_its_numbers() -> None:
    state = _group(_entry("onet", 943718, served=6.8), _entry("rnet", 8 * MB // 10), memory=2 * MB)
    evict = [state.entries[0].program]
    told = "evicts onet (0.9 MB, idle 3.2 s): 0.3 of 2.0 MB are free"
    assert str(room_told(state, evict, 10.0)) == told
    state.memory = None
    assert str(room_told(state, evict, 10.0)) == "evicts onet (0.9 MB, idle 3.2 s)"
    assert str(room_told(state, (), 10.0)) == ""


SIZES = st.tuples(st.integers(0, 6), st.integers(0, 4), st.booleans(), st.integers(0, 3))


@given(
    residents=st.lists(SIZES, max_size=5),
    wanted=st.tuples(st.integers(0, 9), st.integers(0, 6)),
    memory=st.none() | st.integers(0, 20),
    capacity=st.integers(1, 6),
)
def test_it_fits_afterwards_and_nothing_went_in_vain(
    residents: list[tuple[int, int, bool, int]],
    wanted: tuple[int, int],
    memory: int | None,
    capacity: int,
) -> None:
    entries = [
        _entry(name, size, scratch=scratch, served=served)
        for name, (size, scratch, _, served) in zip("abcde", residents, strict=False)
    ]
    pinned = "".join(name for name, (*_, pin, _) in zip("abcde", residents, strict=False) if pin)
    state = _group(*entries, capacity=capacity, memory=memory, pinned=pinned)
    program = _entry("n", wanted[0], scratch=wanted[1]).program
    evict = making_room(state, program)
    kept = [each for each in state.residents.values() if each.key in state.pinned]
    if evict is None:
        assert not state.fits([program, *kept])
        return
    staying = [each for each in state.residents.values() if each not in evict]
    assert state.fits([program, *staying])
    assert not set(kept) & set(evict)
    assert not any(state.fits([program, *staying, spared]) for spared in evict)
