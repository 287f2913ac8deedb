"""What a device did with its time: spans, and their shares of the whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

__all__ = ["Kind", "Shares", "Span", "covered", "shares"]

Kind: TypeAlias = Literal["swap", "transfer", "compute"]
"""Making a program resident, moving tensors, running a frame."""


@final
@dataclass(frozen=True, slots=True)
class Span:
    """One stretch of a device's time.

    Attributes:
        kind: what the device did.
        model: for whom.
        start: seconds on the loop's clock.
        end: likewise.
    """

    kind: Kind
    model: str
    start: float
    end: float


@final
@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of a device's time, from 0 to 1.

    A device may transfer and compute at once: the first three may come to more than 1.
    """

    swap: float
    transfer: float
    compute: float
    idle: float


def covered(spans: Iterable[Span]) -> Iterator[tuple[float, float]]:
    """Merge spans into stretches that neither overlap nor touch, the earliest first."""
    ordered = sorted((span.start, span.end) for span in spans)
    if not ordered:
        return
    start, end = ordered[0]
    for next_start, next_end in ordered[1:]:
        if next_start > end:
            yield start, end
            start = next_start
        end = max(end, next_end)
    yield start, end


def shares(spans: Iterable[Span]) -> Shares:
    """Tell how the time from the first start to the last end was spent; without spans it was idle."""
    found = list(spans)
    whole = max((span.end for span in found), default=0.0) - min((span.start for span in found), default=0.0)

    def share(stretches: Iterator[tuple[float, float]]) -> float:
        return sum(end - start for start, end in stretches) / whole if whole else 0.0

    return Shares(
        swap=share(covered(span for span in found if span.kind == "swap")),
        transfer=share(covered(span for span in found if span.kind == "transfer")),
        compute=share(covered(span for span in found if span.kind == "compute")),
        idle=1.0 - share(covered(found)),
    )
