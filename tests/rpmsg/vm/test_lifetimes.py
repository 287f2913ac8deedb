"""The four lifetime rules of the vendor's page, and what happens beyond the end of a life."""

from __future__ import annotations

import numpy as np
import pytest

from repertory.transports.rpmsg.vm.errors import StaleInput, StaleView

from .conftest import Make
from .support import affine, floats, several


def test_a_copied_result_is_not_limited_in_time(make: Make) -> None:
    vm = make(affine())
    first = vm["main"](floats(1))
    vm["main"](floats(2))
    vm.run_nocopy(floats(3))
    vm.close()
    assert np.array_equal(first.numpy(), 2 * floats(1))


@pytest.mark.parametrize("how", ["run_nocopy", "main"])
def test_a_view_lives_until_the_next_run(make: Make, how: str) -> None:
    vm = make(affine())
    view = vm.run_nocopy(floats(1))
    assert np.array_equal(view, 2 * floats(1))
    assert np.array_equal(view, 2 * floats(1)), "reading is no run"
    vm.run_nocopy(floats(2)) if how == "run_nocopy" else vm["main"](floats(2))
    with pytest.raises(StaleView, match="next run"):
        view.sum()


@pytest.mark.parametrize("count", [1, 7])
def test_not_even_the_bare_memory_is_written_to(make: Make, count: int) -> None:
    views = make(several(count)).run_nocopy(floats(1, (2, 3)))
    for view in [views] if count == 1 else views:
        bare = np.asarray(view, copy=False)
        with pytest.raises(ValueError, match="WRITEABLE"):
            bare.flags.writeable = True


def test_every_view_of_a_run_ends(make: Make) -> None:
    vm = make(several(7))
    views = vm.run_nocopy(floats(1, (2, 3)))
    assert len(views) == 7
    rows = [view[0] for view in views]
    for place, view in enumerate(views):
        assert np.allclose(view, (place + 1) * floats(1, (2, 3)))
    vm["main"](floats(2, (2, 3)))
    for view in [*views, *rows]:
        with pytest.raises(StaleView):
            float(view.max())


def test_a_view_ends_with_close(make: Make) -> None:
    vm = make(affine())
    view = vm.run_nocopy(floats(1))
    vm.close()
    with pytest.raises(StaleView, match="closed"):
        np.asarray(view)


def test_a_staged_input_lives_until_close(make: Make) -> None:
    vm = make(affine())
    staged = vm.create_input((1, 4), "float32").copyfrom(floats(1))
    for seed in range(3):
        vm["main"](floats(seed))
        assert np.array_equal(vm["main"](staged).numpy(), 2 * floats(1))
    assert np.array_equal(staged.numpy(), floats(1))
    vm.close()
    for use in (staged.numpy, lambda: staged.copyfrom(floats(2)), lambda: np.asarray(staged)):
        with pytest.raises(StaleInput, match="closed"):
            use()


def test_bare_memory_is_read_only_and_is_what_the_dsp_writes(make: Make) -> None:
    vm = make(affine())
    bare = np.asarray(vm.run_nocopy(floats(1)), copy=False)
    assert np.array_equal(bare, 2 * floats(1))
    with pytest.raises(ValueError, match="read-only"):
        bare[0] = 0
    vm.run_nocopy(floats(2))
    assert np.array_equal(bare, 2 * floats(2))


def test_an_error_ends_no_view(make: Make) -> None:
    vm = make(affine())
    view = vm.run_nocopy(floats(1))
    for bad in ("text", np.zeros((1,) * 7), np.zeros(3, bool)):
        with pytest.raises((TypeError, ValueError)):
            vm["main"](bad)
    assert np.array_equal(view, 2 * floats(1))


def test_a_view_may_be_the_next_input(make: Make) -> None:
    vm = make(affine())
    view = vm.run_nocopy(floats(1))
    for factor in (4, 8, 16):
        view = vm.run_nocopy(view)
        assert np.allclose(view, factor * floats(1))
