from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repertory.runtime.timeline import Shares, Span, covered, shares

TIMES = st.integers(0, 30)


def _span(times: tuple[int, int]) -> Span:
    return Span("compute", "m", float(min(times)), float(max(times)))


@given(st.lists(st.tuples(TIMES, TIMES).map(_span)))
def test_covered_keeps_what_is_covered_and_nothing_else(spans: list[Span]) -> None:
    stretches = list(covered(spans))
    for moment in (second + 0.5 for second in range(30)):
        wanted = any(span.start < moment < span.end for span in spans)
        assert sum(start < moment < end for start, end in stretches) == wanted
    assert all(end < start for (_, end), (start, _) in pairwise(stretches))


def test_shares_of_a_busy_device() -> None:
    spans = [
        Span("swap", "a", 10.0, 12.0),
        Span("transfer", "a", 12.0, 13.0),
        Span("compute", "a", 12.5, 15.0),
        Span("compute", "b", 14.0, 16.0),
        Span("compute", "b", 19.0, 20.0),
    ]
    spent = shares(spans)
    assert (spent.swap, spent.transfer) == pytest.approx((0.2, 0.1))
    assert (spent.compute, spent.idle) == pytest.approx((0.45, 0.3))


@pytest.mark.parametrize("spans", [[], [Span("swap", "a", 1.0, 1.0)]])
def test_no_time_at_all_was_idle(spans: list[Span]) -> None:
    assert shares(spans) == Shares(swap=0.0, transfer=0.0, compute=0.0, idle=1.0)
