"""What is learned of a quantity from its samples."""

from __future__ import annotations

import pytest

from repertory.actors.estimate import Estimate


def _of(*samples: float) -> Estimate:
    estimate = Estimate()
    for sample in samples:
        estimate.add(sample)
    return estimate


def test_the_first_samples_count_alike() -> None:
    assert _of(1.0, 2.0, 3.0).value == pytest.approx(2.0)


def test_a_first_sample_that_is_far_larger_than_the_second_is_forgotten() -> None:
    assert _of(3.1, 1.0).value == 1.0
    assert _of(2.9, 1.0).value == pytest.approx(1.95)
    assert _of(1.0, 3.1).value == pytest.approx(2.05), "but not a far smaller one"


def test_an_outlier_moves_it_a_little_and_ten_in_a_row_bring_it_there() -> None:
    assert _of(*[1.0] * 20, 100.0).value == pytest.approx(1.6)
    assert _of(*[1.0] * 20, *[100.0] * 10).value > 60


def test_the_spread_is_how_far_samples_are_off() -> None:
    assert _of(*[1.0] * 20).spread == 0
    assert _of(*[0.9, 1.1] * 50).spread == pytest.approx(0.1, rel=0.3)
    assert _of(*[1.0] * 20, 100.0).spread == pytest.approx(0.6), "an outlier moves it as little as the mean"


@pytest.mark.parametrize("sample", [-1.0, float("nan")])
def test_what_is_no_length_of_time_counts_as_none(sample: float) -> None:
    assert _of(sample).value == 0
