"""Looking ahead: which sequence of stretches makes the most of a group's time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Final, TypeAlias, final

import msgspec

from .demand import Demand

__all__ = ["Ahead", "look_ahead"]

_SLICES: Final = 8
_ROUNDS: Final = 3  # sequences that end in one slice go on within it so many times


@final
class Ahead(msgspec.Struct, eq=False):
    """A sequence of stretches, by its last one.

    Attributes:
        number: whose stretch it is, among the demands.
        start: when the device turns to it, with a swap where it is not resident.
        end: when its last frame is done.
        frames: served in it.
        worth: of all frames so far, less the price of the time.
        before: what comes first, or None.
        residents: who is resident after it, among the demands; places that others hold are not told.
        at: the next frame of each demand.
    """

    number: int
    start: float
    end: float
    frames: int
    worth: float
    before: Ahead | None
    residents: tuple[int, ...]
    at: tuple[int, ...]

    def steps(self) -> list[Ahead]:
        """Return all stretches in their order."""
        steps: list[Ahead] = []
        step: Ahead | None = self
        while step is not None and step.number >= 0:
            steps.append(step)
            step = step.before
        return steps[::-1]


_Serve: TypeAlias = Callable[[int, float, float], list[tuple[int, float, int]]]

_Stretch: TypeAlias = tuple[float, Ahead, int, float, int, int]
"""What may follow a sequence: worth of both, the sequence, whose stretch, its end, frames, the next frame.

Most of them are never carried on, so that it costs as little as can be.
"""

_WORTH: Final = itemgetter(0)

_Asked: TypeAlias = tuple[int, float, float, list[float], float, float, _Serve]
"""What is looked at again and again of a demand: its number, load, latest, musts, value, service, `serve`."""


def look_ahead(
    demands: Sequence[Demand],
    residents: tuple[int, ...],
    capacity: int,
    now: float,
    *,
    until: float,
    price: float,
    width: int,
) -> Ahead | None:
    """Return the most worthy sequence, or None where nothing can be served in time.

    The time until `until` is cut in slices. Of the sequences that end in one slice, only the `width` most
    worthy are carried on: so like is compared with like.

    Args:
        demands: of the models that ask.
        residents: who of them is resident, the one that is to go first at first.
        capacity: how many of them may be.
        now: when the device is free.
        until: how far to look.
        price: of a second of the device's time.
        width: see above.
    """
    asked: list[_Asked] = [
        (number, each.load, each.latest, each.musts, each.value, each.service, each.serve)
        for number, each in enumerate(demands)
    ]
    root = Ahead(-1, now, now, 0, 0.0, None, residents, (0,) * len(demands))
    per = _SLICES / (until - now)
    slices: list[list[_Stretch]] = [[] for _ in range(_SLICES)]
    ended: list[_Stretch] = []
    _sort_in(_carried_on(root, asked, capacity, until, price), slices, ended, now, per)
    for number in range(_SLICES):
        for _ in range(_ROUNDS if number else _ROUNDS - 1):
            pending, slices[number] = slices[number], []
            if len(pending) > width:
                pending.sort(key=_WORTH, reverse=True)
                del pending[width:]
            for stretch in pending:
                following = _carried_on(_joined(stretch, capacity), asked, capacity, until, price)
                if following:
                    _sort_in(following, slices, ended, now, per)
                else:
                    ended.append(stretch)
        ended += slices[number]
    return _joined(max(ended, key=_WORTH), capacity) if ended else None


def _sort_in(
    stretches: list[_Stretch], slices: list[list[_Stretch]], ended: list[_Stretch], now: float, per: float
) -> None:
    """Sort by the slice in which they end."""
    for stretch in stretches:
        at = int((stretch[3] - now) * per)
        (slices[at] if at < _SLICES else ended).append(stretch)


def _joined(stretch: _Stretch, capacity: int) -> Ahead:
    """Return the sequence with the stretch that follows."""
    worth, before, number, end, frames, upto = stretch
    at, residents = before.at, before.residents
    if number not in residents:
        residents = (*(residents if len(residents) < capacity else residents[1:]), number)
    there = (*at[:number], upto, *at[number + 1 :])
    return Ahead(number, before.end, end, frames, worth, before, residents, there)


def _carried_on(
    before: Ahead, asked: list[_Asked], capacity: int, until: float, price: float
) -> list[_Stretch]:
    """Return what may follow: of each model as much as can be, or less, so that another is still in time."""
    time, worth, last, residents, at = before.end, before.worth, before.number, before.residents, before.at
    leaving = residents[0] if len(residents) >= capacity else -1
    moments: list[tuple[float, float, int]] = []
    askers: list[tuple[_Asked, int, float]] = []
    for each in asked:
        number, load, latest, musts, value, _, _ = each
        index = at[number]
        begin = time if (stays := number in residents) else time + load
        if begin > latest or index >= len(musts):
            continue
        moment = musts[index] if stays and number != leaving else musts[index] - load
        if moment > time:
            moments.append((moment, value, number))
        if number != last:
            askers.append((each, index, begin))
    moments.sort()
    first = moments[0][0] if moments else math.inf
    found: list[_Stretch] = []
    for (number, _, _, _, value, service, serve), index, begin in askers:
        soonest = begin + service
        ends = serve(index, begin, max(soonest, until))
        if not ends:
            continue
        if first < ends[-1][1]:
            for moment in _breaks(moments, number, soonest, ends[-1][1], 2 * value):
                ends += [end for end in serve(index, begin, moment) if end not in ends]
        for upto, end, frames in ends:
            found.append((worth + frames * value - (end - time) * price, before, number, end, frames, upto))
    return found


def _breaks(
    moments: list[tuple[float, float, int]], number: int, soonest: float, end: float, dear: float
) -> Iterator[float]:
    """Return when a stretch may have to end for another's sake: the first such moment, and for one dearer."""
    peer = better = False
    for moment, value, other in moments:
        if moment >= end:
            return
        if other == number or moment < soonest:
            continue
        if value > dear:
            if better:
                continue
            better = True
        elif peer:
            continue
        else:
            peer = True
        yield moment
