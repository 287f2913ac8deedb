"""A quantity that is learned from samples and follows what changes, but not each outlier."""

from __future__ import annotations

from typing import Final, final

__all__ = ["CREDIBLE", "Estimate"]

CREDIBLE: Final = 2
"""Samples from which on a mean is believed: the first call may make something ready."""

_GAIN: Final = 0.2
_LEAP: Final = 3.0  # times the value that one sample counts above it, at most
_FIRST: Final = 3.0  # times the second sample that the first one may be, to count beside it


@final
class Estimate:
    """A moving mean in seconds.

    The first samples count alike, but for a very first one that is far larger than the second. Later ones
    move the mean by a fifth of their distance, and one that lies far above counts as four times the mean: a
    sample 100 times as large moves it by 1.6, and ten in a row bring it there.

    Attributes:
        value: the mean; the prior before the first sample.
        spread: how far samples are off the mean, likewise.
        samples: how many there were.

    Args:
        prior: the value before the first sample.
        fall: what of the distance to a lower sample it moves; less than a fifth keeps it near the upper ones.
    """

    __slots__ = ("_fall", "samples", "spread", "value")

    def __init__(self, prior: float = 0.0, *, fall: float = _GAIN) -> None:
        self.value = prior
        self.spread = 0.0
        self.samples = 0
        self._fall = fall

    def add(self, sample: float) -> None:
        """Learn from one sample; what is negative or no number counts as 0."""
        sample = max(0.0, sample)
        self.samples += 1
        if self.samples == 1 or (self.samples == CREDIBLE and sample * _FIRST < self.value):
            self.value = sample
            return
        step = min(sample - self.value, _LEAP * self.value) if self.value else sample
        self.spread += (abs(step) - self.spread) * max(_GAIN, 1 / (self.samples - 1))
        self.value += step * max(_GAIN if step > 0 else self._fall, 1 / self.samples)

    def __repr__(self) -> str:
        return f"<Estimate {self.value:.6f} s of {self.samples}>"
