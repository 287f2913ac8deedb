"""A policy on simulated devices, through the whole runtime."""

from __future__ import annotations

import anyio

from repertory.actors.policy import Policy
from repertory.runtime.model import Model
from tests.runtime.support import open_virtual, sketched, tensor

__all__ = ["played"]


async def played(
    policy: Policy, arrivals: str, *, models: str = "ab", devices: int = 1, seconds: float = 2.0
) -> str:
    """Return what each device did, in order: `A` for making a model resident, `a` for a frame of it.

    A frame takes 3 ms, a swap 10 ms. `a0 b5` is a frame of each of two models, at 0 and at 5 ms.
    """
    addresses = [f"sim://{number}?window=1&swap_ms=10" for number in range(devices)]
    async with open_virtual(*addresses, policy=policy, spans=1000) as rt:
        loaded = {name: await rt.load(sketched(name, service=0.003)) for name in models}
        start = anyio.current_time()
        async with anyio.create_task_group() as callers:
            for arrival in arrivals.split():
                callers.start_soon(_ask, loaded[arrival[0]], start + float(arrival[1:]) / 1000)
        await anyio.sleep_until(start + seconds)
        lines = rt.timeline()
    return " | ".join(
        " ".join(span.model.upper() if span.kind == "swap" else span.model for span in lines[address])
        for address in addresses
    )


async def _ask(model: Model, when: float) -> None:
    await anyio.sleep_until(when)
    await model.infer(tensor(1))
