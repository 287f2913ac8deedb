"""Loads that are played, and what is told of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import final
from xml.etree import ElementTree as ET

import msgspec
import pytest

from repertory.actors.policy import ContextState, Decision, GroupState, Policy, Wait
from repertory.models.errors import ArtifactError, ConfigError
from repertory.runtime.plan.generators import generate
from repertory.runtime.plan.report import Report, jain, mean, report
from repertory.runtime.plan.runner import PATIENCE, Fate, Played, Request, plan_trace, run
from repertory.runtime.plan.split import time_split
from repertory.runtime.plan.svg import Box, Picture, Text, svg
from repertory.runtime.plan.trace import Arrival, GroupLoad, ModelLoad, Trace
from repertory.runtime.plan.variants import shortened, with_groups, with_window
from repertory.runtime.plan.waits import longest_waits
from repertory.runtime.policies.fifo import Fifo
from repertory.runtime.policies.hailort import HailoRt
from repertory.runtime.policies.rotation import Rotation
from repertory.runtime.timeline import Span

REAL = ("decision_seconds", "simulated_per_second")
GROUP = "sim://0?window=1&swap_ms=20"


@final
class _Never(Policy):
    """Grants nothing, and has nothing dropped."""

    keeps_deadlines = False

    def decide(self, state: GroupState, now: float) -> Decision:
        return Wait("never")


def _load(arrivals: Sequence[tuple[float, int, float]], *models: ModelLoad, seconds: float = 0.2) -> Trace:
    return Trace(
        name="by hand",
        seconds=seconds,
        groups=(GroupLoad(GROUP),),
        models=models or (ModelLoad(name="a", service=0.010),),
        arrivals=tuple(Arrival(time, model, deadline, 0) for time, model, deadline in arrivals),
    )


def _rounded(played: Played) -> list[tuple[int, float, float, Fate]]:
    return [(r.model, round(r.arrival, 6), round(r.end, 6), r.fate) for r in played.requests]


@pytest.mark.virtual
async def test_a_load_that_is_easily_reckoned() -> None:
    played = await run(_load([(0.01, 0, 0.032), (0.01, 0, 0.032), (0.1, 0, math.inf)]), Rotation())
    assert _rounded(played) == [
        (0, 0.01, 0.04, Fate.ON_TIME),  # a swap of 20 ms, 10 ms of service
        (0, 0.01, 0.045, Fate.EXPIRED),  # would be late: it is begun, for one sample is not believed
        (0, 0.1, 0.11, Fate.ON_TIME),
    ]
    assert played.swaps == 1
    (split,) = time_split(played).values()
    parts = msgspec.structs.asdict(split)
    assert parts == pytest.approx(
        {"compute": 0.15, "swap": 0.1, "transfer": 0, "idle_with_work": 0, "idle": 0.75}
    )


@pytest.mark.virtual
async def test_a_policy_without_deadlines_drops_nothing_and_is_judged_all_the_same() -> None:
    played = await run(_load([(0.01, 0, 0.035), (0.01, 0, 0.035), (0.01, 0, 0.05)]), Fifo())
    assert [(round(r.end, 6), r.fate) for r in played.requests] == [
        (0.04, Fate.ON_TIME),
        (0.05, Fate.LATE),
        (0.06, Fate.ON_TIME),
    ]


@pytest.mark.virtual
async def test_clients_ask_again_after_an_answer_and_not_at_once_after_a_refusal() -> None:
    served = ModelLoad(name="a", service=0.010, deadline=0.1, clients=2)
    hopeless = ModelLoad(name="b", service=0.5, deadline=0.1, clients=1, groups=(0,))
    played = await run(_load([], served, seconds=1.0), Rotation())
    assert len(played.requests) == 99  # one is answered every 10 ms, from 30 ms on, the last at 1.01 s
    assert {request.fate for request in played.requests} == {Fate.ON_TIME}
    played = await run(_load([], hopeless, seconds=1.0), Rotation())
    assert len(played.requests) == pytest.approx(10, abs=1)


@pytest.mark.virtual
async def test_what_is_never_served_ends_the_plan_all_the_same() -> None:
    played = await run(_load([(0.0, 0, 0.1), (0.15, 0, 0.2)]), _Never())
    assert sorted(_rounded(played)) == [(0, at, 0.350002, Fate.UNANSWERED) for at in (0.0, 0.15)]
    played = await run(_load([(0.0, 0, math.inf)]), _Never())
    assert played.seconds == pytest.approx(PATIENCE)


@final
class _Looking(Policy):
    """Another policy that remembers which models it was shown."""

    def __init__(self) -> None:
        self._policy = Rotation()
        self.seen: dict[str, tuple[str, ContextState]] = {}

    def decide(self, state: GroupState, now: float) -> Decision:
        self.seen |= {entry.context.name: (state.name, entry.context) for entry in state.entries}
        return self._policy.decide(state, now)


@pytest.mark.virtual
async def test_a_model_has_the_bounds_and_groups_that_the_load_says() -> None:
    own = ModelLoad(name="a", service=0.01, priority=3, weight=2.5, max_wait=0.5, groups=(1,))
    load = _load([(0.0, 0, 0.1), (0.0, 1, 0.1)], own, ModelLoad(name="b", service=0.01, groups=(0,)))
    looking = _Looking()
    played = await run(with_groups(load, 2), looking)  # which lets every model be served by every group
    assert {request.fate for request in played.requests} == {Fate.ON_TIME}
    groups = (GroupLoad("sim://0?window=1&swap_ms=20"), GroupLoad("sim://1?window=1&swap_ms=20"))
    await run(msgspec.structs.replace(load, groups=groups), looking)
    (first, a), (second, b) = looking.seen["a"], looking.seen["b"]
    assert (first, second) == (groups[1].address, groups[0].address)
    assert (a.priority, a.weight, a.max_wait) == (3, 2.5, 0.5)
    assert (b.priority, b.weight, b.max_wait) == (0, 1.0, 1.0)


@pytest.mark.virtual
async def test_hardware_and_missing_files_are_refused() -> None:
    load = _load([(0.0, 0, 0.1)])
    with pytest.raises(ConfigError, match="memx://0: a plan runs on simulated devices"):
        await run(msgspec.structs.replace(load, groups=(GroupLoad("memx://0"),)), Rotation())
    with pytest.raises(ArtifactError, match=r"nothing\.json"):
        await run(_load([], ModelLoad(name="a", service=0.01, path="nothing.json")), Rotation())
    with pytest.raises(ConfigError, match="a has no path"):
        await run(msgspec.structs.replace(load, groups=(GroupLoad("sim+memx://0"),)), Rotation())


@cache
def _played(name: str, seconds: float) -> tuple[Report, Played]:
    played = plan_trace(generate(name, 1, seconds), Rotation())
    return report(played, policy="rotation"), played


@pytest.mark.parametrize(("name", "seconds"), [("T4", 0.7), ("T5", 1.0), ("T2", 2.0)])
def test_every_request_is_accounted_for(name: str, seconds: float) -> None:
    told, played = _played(name, seconds)
    load = played.trace
    if load.arrivals:
        asked = Counter((request.model, round(request.arrival, 6)) for request in played.requests)
        assert asked == Counter((each.model, round(each.time, 6)) for each in load.arrivals)
    kinds = ("on_time", "late", "rejected", "withdrawn", "expired", "superseded", "failed", "unanswered")
    assert sum(getattr(told, kind) for kind in kinds) == told.arrivals == len(played.requests) > 0
    assert told.rejected == told.rejected_full + told.rejected_unreachable
    asked_by = Counter(load.models[request.model].name for request in played.requests)
    kept = sum(told.per_model[model] * count for model, count in asked_by.items())
    assert kept == pytest.approx(told.on_time) == pytest.approx(told.goodput * told.arrivals)
    assert told.worst_model == min(told.per_model.values()) == told.per_model[told.worst_name]
    for split in told.time.values():
        assert sum(msgspec.structs.asdict(split).values()) == pytest.approx(1.0)
    computed = sum(split.compute for split in told.time.values()) * played.seconds
    frames = sum(span.kind == "compute" for spans in played.spans.values() for span in spans)
    assert computed == pytest.approx(frames * load.models[0].service)


def test_the_same_seed_gives_the_same_report() -> None:
    first, _ = _played("T2", 2.0)
    second = report(plan_trace(generate("T2", 1, 2.0), Rotation()), policy="rotation")
    same = dict.fromkeys(REAL, 0.0)
    assert msgspec.structs.replace(first, **same) == msgspec.structs.replace(second, **same)


def test_more_groups_help() -> None:
    load = generate("T2", 1, 2.0)
    few = report(plan_trace(load, HailoRt()), policy="hailort")
    played = plan_trace(with_groups(load, 4), HailoRt())
    many = report(played, policy="hailort")
    assert few.goodput + 0.2 < many.goodput
    assert list(played.spans) == [f"sim://{index}?window=1&swap_ms=20" for index in range(4)]


def _by_hand(requests: Sequence[Request], spans: Sequence[Span], *models: ModelLoad) -> Played:
    return Played(
        trace=_load([], *models, seconds=10.0),
        requests=list(requests),
        spans={GROUP: list(spans)},
        swaps=0,
        seconds=10.0,
        decisions=0,
        decision_seconds=0.0,
        real_seconds=1.0,
    )


def test_the_longest_wait_goes_from_the_first_request_since_a_begin_to_the_next() -> None:
    one = ModelLoad(name="a", service=1.0, max_wait=2.0)
    requests = [
        Request(0, 0.0, 9.0, 1.5, Fate.ON_TIME),  # begun at 0.5
        Request(0, 1.0, 1.2, 1.2, Fate.EXPIRED),  # hungry since 1.0
        Request(0, 2.0, 2.1, 2.0, Fate.UNREACHABLE),
        Request(0, 2.5, 9.0, 4.0, Fate.ON_TIME),  # begun at 3.0: 2 s after
        Request(0, 4.5, 4.6, 4.6, Fate.EXPIRED),  # and then nobody asks for a long time
        Request(0, 8.0, 9.0, 9.0, Fate.ON_TIME),
    ]
    spans = [Span("compute", "a", end - 1.0, end) for end in (1.5, 4.0, 9.0)]
    assert longest_waits(_by_hand(requests, spans, one)) == pytest.approx({"a": 2.0})
    patient = msgspec.structs.replace(one, max_wait=60.0)
    assert longest_waits(_by_hand(requests, spans, patient)) == pytest.approx({"a": 3.5})
    assert longest_waits(_by_hand([requests[1], requests[4]], [], one)) == pytest.approx({"a": 0.2})
    turn = Span("compute", "a", 2.25, 2.5)  # of a frame that nobody waited for to its end
    assert longest_waits(_by_hand(requests, [*spans, turn], one)) == pytest.approx({"a": 1.25})
    nameless = [Span("compute", "the file's own name", 0.0, 0.25)]
    quick = [Request(0, at, 9.0, at + 0.25, Fate.ON_TIME) for at in (0.0, 2.0)]
    assert longest_waits(_by_hand(quick, nameless, one)) == pytest.approx({"a": 0.0})
    both = [Request(0, 0.0, 9.0, end, Fate.ON_TIME) for end in (2.0, 5.0)]
    spans = [Span("compute", "a", end - 1.0, end) for end in (2.0, 5.0)]
    assert longest_waits(_by_hand(both, spans, one)) == pytest.approx({"a": 3.0})  # from the first begin on


def test_a_group_is_idle_with_work_only_if_it_may_serve_what_waits() -> None:
    here, elsewhere = ModelLoad(name="a", service=1.0), ModelLoad(name="b", service=1.0, groups=(1,))
    requests = [Request(0, 1.0, 9.0, 4.0, Fate.ON_TIME), Request(1, 5.0, 9.0, 9.0, Fate.EXPIRED)]
    spans = [
        Span("swap", "a", 1.5, 3.0),
        Span("compute", "a", 3.0, 4.0),
        Span("transfer", "a", 2.0, 4.5),
    ]
    played = _by_hand(requests, spans, here, elsewhere)
    (split,) = time_split(played).values()
    wanted = {"compute": 0.1, "swap": 0.15, "transfer": 0.05, "idle_with_work": 0.05, "idle": 0.65}
    assert msgspec.structs.asdict(split) == pytest.approx(wanted)
    beside = msgspec.structs.replace(played, spans={GROUP: [], "sim://1": spans})
    split = time_split(beside)[GROUP]  # what another group has begun does not wait for this one
    assert (split.idle_with_work, split.idle) == pytest.approx((0.2, 0.8))


def test_percentiles_fairness_and_means() -> None:
    requests = [Request(0, 0.0, 1.0, (1 + n) / 1000, Fate.ON_TIME) for n in range(1000)]
    requests += [Request(1, 0.0, 1.0, 0.0, Fate.FULL)] * 1000
    models = ModelLoad(name="a", service=1e-3), ModelLoad(name="b", service=1e-3)
    told = report(_by_hand(requests, [], *models), policy="x", bound=0.8)
    assert (told.p50, told.p99, told.p999) == pytest.approx((0.5005, 0.99001, 0.999001))
    assert told.per_model == {"a": 1.0, "b": 0.0}
    assert (told.goodput, told.worst_name, told.jain) == (0.5, "b", 0.5)
    assert jain([0.3, 0.3, 0.3]) == pytest.approx(1.0)
    other = report(_by_hand(requests[:1000], [], *models), policy="x", bound=1.0)
    both = mean([told, other])
    assert (both.goodput, both.bound, both.arrivals) == pytest.approx((0.75, 0.9, 1500))
    assert both.per_model == {"a": 1.0, "b": 0.0}
    assert both.seed is None
    assert msgspec.json.decode(msgspec.json.encode(both), type=Report) == both


def test_a_picture_may_name_anything() -> None:
    picture = svg(Picture(9, 9, [Box(0, 0, 1, 1, "#000000", "a<b>&c")], [Text(0, 0, "x<y>&z")]))
    root = ET.fromstring(picture)
    assert [text.text for text in root.findall("{*}text")] == ["x<y>&z"]
    assert root.findtext("{*}rect/{*}title") == "a<b>&c"


def test_variants_of_a_load() -> None:
    load = generate("T6", 1, 4.0)
    short = shortened(load, 1.5)
    assert short.seconds == 1.5
    assert short.arrivals == tuple(each for each in load.arrivals if each.time < 1.5)
    assert with_window(load, 5).groups == (GroupLoad("sim://0?window=5&swap_ms=8"),)
    for wrong in (0.0, -1.0, 4.1, math.nan):
        with pytest.raises(ConfigError, match="seconds"):
            shortened(load, wrong)
    with pytest.raises(ConfigError, match="groups 0 came"):
        with_groups(load, 0)
    with pytest.raises(ConfigError, match="sim\\+memx"):
        with_window(msgspec.structs.replace(load, groups=(GroupLoad("sim+memx://0"),)), 2)
