"""How many frames of periodic cameras one device can serve in time, by dynamic programming.

Time is cut into equal steps and repeats after a cycle. A state is a step, the resident model, and for each
camera how many of its frames wait that can still be in time. From each, the device idles for a step, serves
the oldest frame of the resident model, or makes another model resident; a state is worth as many frames as
can be served from there on. What a further cycle adds to that is nowhere less than the best mean in some
state, so the most that it adds anywhere is a bound, and exact once it adds as much everywhere.

The arrival of a frame and its last start that is in time are rounded down to a step, and so are durations:
the result errs upwards, if at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

__all__ = ["Camera", "Cycle", "most_frames"]

Counts: TypeAlias = NDArray[np.intp]

_STEP: Final = 0.5e-3
"""Seconds of the longest step."""

_GRANULES: Final = 8
"""Steps of the shortest service, at the least."""

_ROUND: Final = 12
_ROUNDS: Final = 5
_TOGETHER: Final = 1_500_000
_EPSILON: Final = 0.01  # of a step: periods and phases are fitted to what was measured


@final
class Camera(NamedTuple):
    """A source of frames, all in seconds.

    Attributes:
        phase: when its first frame comes.
        frames: how many come in a cycle, equally spaced.
        service: device time of a frame.
        swap: device time to make its model resident.
        deadline: within which a frame is to be answered.
    """

    phase: float
    frames: int
    service: float
    swap: float
    deadline: float


@final
class Cycle:
    """Cameras whose frames come anew in the same way after `length` seconds, which no duration exceeds.

    Attributes:
        steps: how many there are.
        service: steps of a frame, by camera.
        swap: steps of a swap, by camera.
        came: frames that have come by a step, shape (steps and the longest duration, cameras).
        room: frames that have come and can be in time when they are started at a step, of the same shape.
    """

    def __init__(self, cameras: Sequence[Camera], length: float) -> None:
        self.steps = _steps(length, [each for camera in cameras for each in camera[2:4]])
        self._step = length / self.steps
        self.service = self._rounded([camera.service for camera in cameras])
        self.swap = self._rounded([camera.swap for camera in cameras])
        spare = np.array([camera.deadline - camera.service for camera in cameras])
        first = [camera.phase + length * np.arange(camera.frames) / camera.frames for camera in cameras]
        self.came = self._passed(first)
        gone = self._passed([each + self._step + late for each, late in zip(first, spare, strict=True)])
        self.room = np.maximum(self.came - gone, 0)

    def states(self, sets: Sequence[tuple[int, ...]]) -> int:
        """Return how many states `most_frames` works through for these sets of cameras."""
        base = int(self.room.max()) + 1
        return self.steps * sum(len(each) * int(base ** len(each)) for each in sets)

    def _rounded(self, seconds: Sequence[float] | NDArray[np.float64]) -> Counts:
        steps = np.floor(np.asarray(seconds, np.float64) / self._step + _EPSILON)
        return steps.astype(np.intp)

    def _passed(self, moments: Sequence[NDArray[np.float64]]) -> Counts:
        """Return how many of each camera's moments, repeated for ever, have passed by each step."""
        last = self.steps + int(max(self.service.max(), self.swap.max()))
        by_camera = [
            ((np.arange(last + 1)[:, None] - self._rounded(each)) // self.steps).sum(axis=1)
            for each in moments
        ]
        return np.stack(by_camera, axis=1)


def _steps(length: float, durations: Sequence[float]) -> int:
    """Return into how many steps a cycle is cut, so that the durations lose the least by rounding."""
    wanted = [each for each in durations if each > 0]
    least = math.ceil(length / min(_STEP, min(wanted) / _GRANULES))

    def loss(steps: int) -> float:
        exact = [each * steps / length for each in wanted]
        return round(max(1 - math.floor(each + _EPSILON) / each for each in exact), 4)

    return min(range(least, 3 * least), key=loss)


def most_frames(cycle: Cycle, sets: Sequence[tuple[int, ...]]) -> dict[tuple[int, ...], float]:
    """Return for each set of cameras how many of its frames one device can serve in time, a cycle."""
    found: dict[tuple[int, ...], float] = {}
    for some in _portions(cycle, sets):
        found |= zip(some, _Device(cycle, some).most().tolist(), strict=True)
    return found


def _portions(cycle: Cycle, sets: Sequence[tuple[int, ...]]) -> Iterator[list[tuple[int, ...]]]:
    """Cut sets into lists of one size, not too many at once."""
    for size in sorted({len(each) for each in sets}):
        same = [each for each in sets if len(each) == size]
        portion = max(_TOGETHER // cycle.states(same[:1]), 1)
        yield from (same[start : start + portion] for start in range(0, len(same), portion))


@final
class _Device:
    """The states of one device, for several sets of as many cameras, and what each choice leads to.

    A state's index is made of its step, the set, the place in the set of the resident model, and a number
    whose digits are the frames that wait for each camera of the set.
    """

    def __init__(self, cycle: Cycle, sets: Sequence[tuple[int, ...]]) -> None:
        self._cycle = cycle
        self._sets = np.array(sets)
        base = int(cycle.room.max()) + 1
        count, size = self._sets.shape
        self._values = [base**place for place in range(size)]
        self._digits: list[Counts] = [np.arange(base**size) // value % base for value in self._values]
        self._shape = (count, size, base**size)
        self._steps = np.arange(cycle.steps)
        self._idle = self._leads(np.ones_like(self._sets))
        self._swap = self._leads(cycle.swap[self._sets])
        self._serve, self._served = self._leads_served()

    def most(self) -> NDArray[np.float64]:
        """Return the most frames a cycle, by set."""
        worth = np.zeros((self._cycle.steps, *self._shape), np.int32)
        most = np.full(len(self._sets), math.inf)
        for _ in range(_ROUNDS):
            before = worth[0].copy()
            for _ in range(_ROUND):
                self._go_back(worth)
            added = (worth[0] - before).reshape(len(self._sets), -1)
            most = np.minimum(most, added.max(axis=1) / _ROUND)
            if (added.max(axis=1) == added.min(axis=1)).all():
                break
        return most

    def _go_back(self, worth: NDArray[np.int32]) -> None:
        """Make each state worth what it was a cycle later, and what that cycle brings."""
        flat = worth.reshape(-1)
        ahead, there = np.empty((2, *self._shape), np.int32)
        for step in range(self._cycle.steps - 1, -1, -1):
            np.take(flat, self._serve[step], out=ahead, mode="clip")
            ahead += self._served[step]
            np.take(flat, self._idle[step], out=there, mode="clip")
            np.maximum(ahead, there, out=worth[step])
            np.take(flat, self._swap[step], out=there, mode="clip")  # a swap of no steps stays in this one
            np.maximum(worth[step], there.max(axis=1, keepdims=True), out=worth[step])

    def _leads(self, durations: Counts) -> Counts:
        """Return the state after so many steps, by set and place, in which nothing is served."""
        leads = [self._after(each, self._digits) for each in durations.T]
        return self._indices(durations, np.stack(leads, axis=2))

    def _leads_served(self) -> tuple[Counts, NDArray[np.bool_]]:
        """Return the state after serving the resident model, and whether there was something to serve."""
        durations = self._cycle.service[self._sets]
        leads: list[Counts] = []
        served: list[NDArray[np.bool_]] = []
        for place, cameras in enumerate(self._sets.T):
            waiting: list[Counts] = list(self._digits)
            waiting[place] = np.minimum(waiting[place], self._cycle.room[self._steps][:, cameras, None])
            served.append(waiting[place] > 0)
            waiting[place] = waiting[place] - served[-1]
            leads.append(self._after(durations[:, place], waiting))
        return self._indices(durations, np.stack(leads, axis=2)), np.stack(served, axis=2)

    def _after(self, durations: Counts, waiting: Sequence[Counts]) -> Counts:
        """Return the numbers of what waits after so many steps, by step, set and number of before."""
        cycle, later = self._cycle, self._steps[:, None] + durations
        numbers: Counts = np.zeros(1, np.intp)
        for cameras, value, each in zip(self._sets.T, self._values, waiting, strict=True):
            new = cycle.came[later, cameras] - cycle.came[self._steps][:, cameras]
            numbers = numbers + value * np.minimum(
                each + new[..., None], cycle.room[later, cameras][..., None]
            )
        return numbers

    def _indices(self, durations: Counts, numbers: Counts) -> Counts:
        count, size, states = self._shape
        places = np.arange(count * size, dtype=np.intp).reshape(count, size) * states
        rows = (self._steps[:, None, None] + durations) % self._cycle.steps * (count * size * states)
        indices: Counts = numbers + (rows + places)[..., None]
        return indices
