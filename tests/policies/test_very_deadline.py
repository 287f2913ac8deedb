"""Nothing is planned to end at its very deadline: of two things at one moment either may come first."""

from __future__ import annotations

import pytest

from repertory.runtime.policies.scene import INSTANT, asker_of

from .hand_made import NOW, context, entry, group

SERVICE, SWAP = 0.01, 0.02


@pytest.mark.parametrize("resident", [False, True])
def test_who_waits_must_begin_so_early_that_he_ends_before_his_deadline(*, resident: bool) -> None:
    model, deadline = context("a", 1, NOW), NOW + 1.0
    model.glance = lambda: (0, deadline)
    of = entry(model)
    for _ in range(2):  # a single one is not believed
        of.service.add(SERVICE)
    of.swap.add(SWAP)
    state = group(of, residents="a" if resident else "")
    asker = asker_of(state, of, NOW, NOW, resident=resident)
    end = asker.must + SERVICE + (0 if resident else SWAP)
    assert deadline - end == pytest.approx(INSTANT)
