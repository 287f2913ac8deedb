"""Playing a load: the actual runtime on simulated devices, under virtual time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, final

import anyio
import numpy as np
from anyio.abc import TaskGroup

from repertory.actors.context import LENIENCE
from repertory.actors.limits import QUEUE, QUEUE_BYTES, Limits
from repertory.actors.policy import Decision, GroupState, Policy
from repertory.models.errors import (
    ArtifactError,
    ConfigError,
    DeadlineExceeded,
    DeadlineUnreachable,
    QueueFull,
    RepertoryError,
    Superseded,
)
from repertory.models.sketch import sketch
from repertory.models.spec import Array, TensorSpec
from repertory.runtime.model import Model
from repertory.runtime.opening import open_runtime
from repertory.runtime.runtime import Runtime
from repertory.runtime.timeline import Span
from repertory.transports.real import RealWorld
from repertory.transports.virtual import VirtualWorld, virtual_options

from .played import Fate, Played, Request
from .trace import ModelLoad, Trace

__all__ = ["PATIENCE", "Fate", "Played", "Request", "plan_trace", "run"]

PATIENCE: Final = 60.0
"""Seconds after the last arrival in which requests without a deadline may still be answered."""

_SPANS: Final = 1 << 22
_BOUNDLESS: Final = (1 << 20, 1 << 40)
_PORT: Final = TensorSpec("x", (1,), np.dtype(np.uint8))


def plan_trace(trace: Trace, policy: Policy) -> Played:
    """Play a load under virtual time, in an event loop of its own.

    Raises:
        ConfigError: a group's address is wrong, or needs real time.
        ArtifactError: a model file cannot be read, or no group takes it.
    """
    return anyio.run(
        partial(run, trace, policy), backend="asyncio", backend_options=virtual_options("asyncio")
    )


async def run(trace: Trace, policy: Policy) -> Played:
    """Play a load in this event loop, which must be on virtual time (`virtual_options`).

    Requests without a place to wait are never refused where the policy knows no deadlines
    (`keeps_deadlines` is false): they wait without bound, and whether they are late is judged here.

    Raises:
        ConfigError: a group's address is wrong, or needs real time.
        ArtifactError: a model file cannot be read, or no group takes it.
    """
    clock = RealWorld().now
    began = clock()
    timed = _Timed(policy, clock)
    addresses = _addresses(trace)
    async with open_runtime(addresses, world=VirtualWorld(), policy=timed, spans=_SPANS) as rt:
        models = [await _load(rt, model, addresses, timed) for model in trace.models]
        play = _Play(trace, models, keeps_deadlines=timed.keeps_deadlines)
        await play()
        groups = rt.statistics().groups.values()
        swaps = sum(group.swaps for group in groups)
        spans = {name: [_since(span, play.start) for span in kept] for name, kept in rt.timeline().items()}
    return Played(
        trace=trace,
        requests=play.requests,
        spans={address: spans.get(address, []) for address in addresses},
        swaps=swaps,
        seconds=max(trace.seconds, play.requests[-1].end if play.requests else 0.0),
        decisions=timed.decisions,
        decision_seconds=timed.seconds,
        real_seconds=clock() - began,
    )


@final
class _Timed(Policy):
    """Another policy, and how long it takes.

    Attributes:
        decisions: how often it was asked.
        seconds: of real time that it took in all.
        keeps_deadlines: whether requests are given their deadlines.
    """

    def __init__(self, policy: Policy, clock: Callable[[], float]) -> None:
        self._policy = policy
        self._clock = clock
        self.keeps_deadlines = policy.keeps_deadlines
        self.decisions = 0
        self.seconds = 0.0

    def decide(self, state: GroupState, now: float) -> Decision:
        began = self._clock()
        decision = self._policy.decide(state, now)
        self.seconds += self._clock() - began
        self.decisions += 1
        return decision


@final
class _Play:
    """One run: feeds the arrivals, keeps the clients asking, and writes down what becomes of each request.

    Attributes:
        start: when the load began, on the loop's clock.
        requests: those that have ended.
    """

    def __init__(self, trace: Trace, models: list[Model], *, keeps_deadlines: bool) -> None:
        self._trace = trace
        self._models = models
        self._keeps_deadlines = keeps_deadlines
        self._inputs = [_zeros(model) for model in models]
        self.start = anyio.current_time()
        self.requests: list[Request] = []

    async def __call__(self) -> None:
        """Return when every request has ended."""
        async with anyio.create_task_group() as watch:
            watch.start_soon(self._give_up, watch)
            async with anyio.create_task_group() as callers:
                callers.start_soon(self._feed, callers)
                for index, model in enumerate(self._trace.models):
                    for _ in range(model.clients):
                        callers.start_soon(self._client, index, model)
            watch.cancel_scope.cancel()

    async def _feed(self, callers: TaskGroup) -> None:
        for arrival in self._trace.arrivals:
            await anyio.sleep_until(self.start + arrival.time)
            callers.start_soon(self._ask, arrival.model, arrival.deadline, arrival.priority)

    async def _client(self, index: int, model: ModelLoad) -> None:
        """Ask, wait for the answer, ask again; after a refusal when its deadline would have come."""
        stop = self.start + self._trace.seconds
        while (now := anyio.current_time()) < stop:
            await self._ask(index, model.deadline, model.priority)
            if anyio.current_time() <= now:
                await anyio.sleep_until(min(now + model.deadline, stop))

    async def _ask(self, index: int, deadline: float, priority: int) -> None:
        arrival = anyio.current_time()
        fate = Fate.UNANSWERED
        until = arrival + deadline
        try:
            await self._models[index].infer(
                self._inputs[index], deadline=until if self._keeps_deadlines else None, priority=priority
            )
            fate = Fate.ON_TIME if anyio.current_time() <= until + LENIENCE else Fate.LATE
        except RepertoryError as error:
            fate = _FATES.get(type(error), Fate.FAILED)
            if fate is Fate.UNREACHABLE and anyio.current_time() > arrival:
                fate = Fate.WITHDRAWN
        finally:
            start, end = self.start, anyio.current_time()
            self.requests.append(Request(index, arrival - start, until - start, end - start, fate))

    async def _give_up(self, watch: TaskGroup) -> None:
        """End what can be answered in time no more.

        A deadline of the scope would be each request's too, so this task cancels it instead.
        """
        await anyio.sleep_until(self.start + self._last())
        watch.cancel_scope.cancel()

    def _last(self) -> float:
        """Return the moment, from the beginning, after which no answer counts any more."""
        trace = self._trace
        ends = [arrival.time + min(arrival.deadline, PATIENCE) for arrival in trace.arrivals]
        ends += [trace.seconds + min(model.deadline, PATIENCE) for model in trace.models if model.clients]
        return max([trace.seconds, *ends]) + 2 * LENIENCE


_FATES: Final[dict[type[RepertoryError], Fate]] = {
    QueueFull: Fate.FULL,
    DeadlineUnreachable: Fate.UNREACHABLE,
    DeadlineExceeded: Fate.EXPIRED,
    Superseded: Fate.SUPERSEDED,
}


def _addresses(trace: Trace) -> list[str]:
    addresses = [group.address for group in trace.groups]
    for address in addresses:
        if not address.startswith(("sim:", "sim+")):
            raise ConfigError(f"{address}: a plan runs on simulated devices, such as sim://0")
    return addresses


async def _load(rt: Runtime, model: ModelLoad, addresses: list[str], policy: _Timed) -> Model:
    source = model.path or sketch(model.name, [_PORT], [_PORT], service=model.service)
    try:
        return await rt.load(
            source,
            name=model.name,
            groups=None if model.groups is None else [addresses[index] for index in model.groups],
            limits=_limits(model, keeps_deadlines=policy.keeps_deadlines),
        )
    except ArtifactError as error:
        if model.path is None:
            raise ConfigError(f"{model.name} has no path, and its groups serve files: {error}") from error
        raise ArtifactError(f"{model.name}: {error}") from error


def _limits(model: ModelLoad, *, keeps_deadlines: bool) -> Limits:
    queue, size = (QUEUE, QUEUE_BYTES) if keeps_deadlines else _BOUNDLESS
    return Limits(
        queue=queue,
        queue_bytes=size,
        weight=model.weight,
        priority=model.priority,
        max_wait=model.max_wait,
    )


def _zeros(model: Model) -> Array | dict[str, Array]:
    """Return one input for all requests; open extents are 1."""
    arrays = {
        spec.name: np.zeros([dim if isinstance(dim, int) else 1 for dim in spec.shape], spec.dtype)
        for spec in model.inputs
    }
    return next(iter(arrays.values())) if len(arrays) == 1 else arrays


def _since(span: Span, start: float) -> Span:
    return Span(span.kind, span.model, span.start - start, span.end - start)
