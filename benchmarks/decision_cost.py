"""What a decision costs, beside the smallest actor there can be, and how fast a load is simulated.

T4 of the plan's traces (32 models on 4 devices) is played by the actual runtime under virtual time, with
the default policy; the time inside `Policy.decide` is summed up and divided by the requests. All along,
after every hundredth decision, the yardstick is measured on a loop of its own: `Minimal` of minimal.py, a
hundred calls of one caller. What one call of it costs on this machine, on the mean of the play, is the unit
of the ratio: a shared machine is quicker at one moment than at the next by half. In the last column it is
what a call costs in a long row with nothing between: caches are warm for it then, as they are not for the
decisions. All times are CPU time of the thread that works.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Any, Self

from anyio.from_thread import start_blocking_portal
from minimal import Minimal

from repertory.actors.policy import Decision, GroupState, Policy
from repertory.runtime.plan.generators import generate
from repertory.runtime.plan.runner import plan_trace
from repertory.runtime.policies.lookahead import look_ahead
from repertory.runtime.policies.swap_aware import SwapAware

CALLS = 100
"""Calls of the yardstick in a row, and decisions between two such rows."""

ROW = 200
"""Such rows with nothing between them."""


class Yardstick:
    """The smallest actor, on a loop in a thread of its own.

    Attributes:
        seconds: that its calls took.
        calls: how many there were.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.calls = 0
        self._minimal = Minimal()
        self._exits = ExitStack()

    def __enter__(self) -> Self:
        self._portal = self._exits.enter_context(start_blocking_portal())
        self._server = self._portal.start_task_soon(self._minimal.serve)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.cancel()
        self._exits.close()

    @property
    def unit(self) -> float:
        """Seconds of a call."""
        return self.seconds / self.calls

    def measure(self) -> None:
        """Measure some calls; the calling thread waits meanwhile."""
        self._portal.call(self._measure)

    async def _measure(self) -> None:
        await self._minimal.ask(None)
        began = time.thread_time()
        for number in range(CALLS):
            await self._minimal.ask(number)
        self.seconds += time.thread_time() - began
        self.calls += CALLS


class Counted:
    """A function, how often it was called, and how long it took."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.calls = 0
        self.seconds = 0.0

    def __call__(self, *args: Any, **options: Any) -> Any:
        began = time.thread_time()
        result = self.function(*args, **options)
        self.seconds += time.thread_time() - began
        self.calls += 1
        return result


class Watched(Policy):
    """The default policy under watch, and the yardstick from time to time."""

    def __init__(self, yardstick: Yardstick) -> None:
        self.watched = Counted(SwapAware().decide)
        self._yardstick = yardstick

    def decide(self, state: GroupState, now: float) -> Decision:
        decision: Decision = self.watched(state, now)
        if not self.watched.calls % CALLS:
            self._yardstick.measure()
        return decision


@contextmanager
def watched_searches() -> Generator[Counted]:
    """Count the policy's looks ahead, wherever it calls them from."""
    counted = Counted(look_ahead)
    users = [vars(module) for module in list(sys.modules.values()) if "look_ahead" in vars(module)]
    users = [names for names in users if names["look_ahead"] is look_ahead]
    for names in users:
        names["look_ahead"] = counted
    try:
        yield counted
    finally:
        for names in users:
            names["look_ahead"] = look_ahead


def play(seed: int, seconds: float) -> tuple[float, float, float, float]:
    """Play one seed, print a line, and return its ratios, cost and speed."""
    trace = generate("T4", seed, seconds)
    with Yardstick() as warm:
        for _ in range(ROW):
            warm.measure()
    with watched_searches() as searches, Yardstick() as yardstick:
        policy = Watched(yardstick)
        began = time.perf_counter()
        requests = len(plan_trace(trace, policy).requests)
        speed = requests / (time.perf_counter() - began)
    unit = yardstick.unit
    decided = policy.watched
    cost = decided.seconds / requests
    told = (
        f"{decided.calls / requests:9.2f}",
        f"{searches.calls / requests:9.3f}",
        f"{searches.seconds / requests * 1e6:9.1f}",
        f"{cost * 1e6:9.1f}",
        f"{unit * 1e6:9.1f}",
        f"{cost / unit:9.2f}",
        f"{warm.unit * 1e6:9.1f}",
        f"{cost / warm.unit:9.2f}",
    )
    print(f"{seed:4} {requests:9}", *told, f"{speed:9.0f}", flush=True)
    return cost / unit, cost, speed, cost / warm.unit


def main() -> None:
    """Print one line a seed, and the means."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="1,2,3,4,5", help="numbers with commas between")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the trace")
    parser.add_argument("--rounds", type=int, default=1, help="plays of each seed")
    options = parser.parse_args()
    print("decisions, searches, and their time: of each request; requests/s: of real time")
    heads = ("requests", "decisions", "searches", "search us", "decide us", "actor us", "x actor")
    print("seed", *(f"{head:>9}" for head in (*heads, "warm us", "x warm", "requests/s")))
    found = [
        play(int(seed), options.seconds) for seed in options.seeds.split(",") for _ in range(options.rounds)
    ]
    ratios, costs, speeds, warm = zip(*found, strict=True)
    print(
        f"x minimal: mean {statistics.mean(ratios):.2f}, median {statistics.median(ratios):.2f};"
        f" x warm: mean {statistics.mean(warm):.2f};"
        f" {statistics.mean(costs) * 1e6:.1f} us a request;"
        f" {statistics.mean(speeds):.0f} simulated requests a second of real time"
    )


if __name__ == "__main__":
    main()
