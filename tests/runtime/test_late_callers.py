"""A caller whose own scope ran out while the event loop was busy."""

from __future__ import annotations

import anyio
import pytest

from repertory.models.errors import DeadlineUnreachable
from repertory.runtime.opening import open_runtime

from .support import sketched, tensor

pytestmark = pytest.mark.realtime


def _busy_until(moment: float) -> None:
    while anyio.current_time() <= moment:
        pass


async def test_its_scope_ends_in_its_own_way(anyio_backend: object) -> None:
    async with open_runtime(["null://"]) as rt:
        model = await rt.load(sketched("net"))
        for _ in range(20):
            with anyio.move_on_after(0.002) as scope:
                _busy_until(scope.deadline)
                await model.infer(tensor(1))
            assert scope.cancelled_caught
        assert rt.statistics().models["net"].answered == 0


async def test_its_own_deadline_is_told(anyio_backend: object) -> None:
    async with open_runtime(["null://"]) as rt:
        model = await rt.load(sketched("net"))
        with anyio.move_on_after(0.002) as scope:
            _busy_until(scope.deadline)
            with pytest.raises(DeadlineUnreachable):
                await model.infer(tensor(1), deadline=scope.deadline - 1)
