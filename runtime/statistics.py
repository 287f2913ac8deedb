"""Frozen snapshots of what the runtime did; every one of them goes to JSON by `msgspec.json.encode`."""

from __future__ import annotations

from typing import final

import msgspec

__all__ = ["Decided", "Event", "GroupStatistics", "ModelStatistics", "Statistics"]


@final
class ModelStatistics(msgspec.Struct, frozen=True):
    """One model since it was loaded.

    At any moment admitted == answered + failed + expired + cancelled + superseded + withdrawn + waiting +
    in_flight, and
    offered == admitted + queueing + what was refused.

    Attributes:
        offered: calls of `infer`.
        queueing: those that wait for a place in the queue (`overflow="wait"`).
        admitted: those that were accepted.
        answered: those whose caller got a result.
        failed: those whose caller got an error of the device, the model or the runtime.
        expired: those whose deadline passed first.
        cancelled: those whose caller gave up first.
        superseded: those that a newer frame replaced.
        withdrawn: those that waited, and whose caller was told before their deadline that it could not be
            met any more.
        waiting: those in the queue.
        in_flight: those that a device has started.
        refused: requests that were never accepted, by reason: invalid; full, a queue; deadline, which had
            passed or could not be met; closed, the model or the runtime; cancelled, by their callers before
            there was a place.
        p50: median seconds from admission to answer over the most recent 4096 answers, or None.
        p99: likewise.
        p999: likewise, of 99.9 %.
        longest_wait: seconds that it waited for a turn, at the most: from a request, or from the start of a
            frame beside which others waited, to the next start.
        residency: seconds since it was made resident, by the names of the groups on which it is.
        swaps: how often it was made resident on them.
        evictions: how often it had to make room there.
        groups: names of the groups that serve it.
    """

    offered: int
    queueing: int
    admitted: int
    answered: int
    failed: int
    expired: int
    cancelled: int
    superseded: int
    withdrawn: int
    waiting: int
    in_flight: int
    refused: dict[str, int]
    p50: float | None
    p99: float | None
    p999: float | None
    longest_wait: float
    residency: dict[str, float]
    swaps: int
    evictions: int
    groups: list[str]


@final
class GroupStatistics(msgspec.Struct, frozen=True):
    """One device group since the runtime was opened.

    The six of compute, transfer, swap, idle with and without work, and out of service add up to `seconds`.

    Attributes:
        family: as in its address.
        simulated: whether no hardware stands behind it.
        in_service: whether the device is open.
        error: why it is not, or None.
        residents: names of the programs on the device.
        in_flight: frames that the device has started and not completed.
        completed: frames that it has completed.
        swaps: binds that succeeded.
        seconds: since the group was made.
        compute_seconds: frames were in flight, and the device computed; what has not completed counts whole,
            and frames that it computes side by side count once.
        transfer_seconds: frames were in flight, and the device computed none of them: tensors were moved.
        swap_seconds: a program was being made resident, and no frame was in flight meanwhile.
        idle_with_work_seconds: neither, and frames waited for a model that this group serves.
        idle_seconds: there was nothing to do.
        out_of_service_seconds: the device was not open.
        evictions: programs that had to make room for another.
        memory_used: bytes that the residents take together, as their files were prepared.
        memory: bytes that there are for them, or None where the device sets no bound.
        busy_seconds: device time of the completed frames, as the driver measured it; those that it computed
            side by side count each.
        incarnations: how often the device was opened.
        readings: what the device last told of its health, with the unit in each name, such as
            `temperature_k`, `power_mw`, `utilisation`; empty where it has told nothing yet. Asking for
            statistics has readings older than a second read again, for the next time.
    """

    family: str
    simulated: bool
    in_service: bool
    error: str | None
    residents: list[str]
    in_flight: int
    completed: int
    swaps: int
    seconds: float
    compute_seconds: float
    transfer_seconds: float
    swap_seconds: float
    idle_with_work_seconds: float
    idle_seconds: float
    out_of_service_seconds: float
    evictions: int
    memory_used: int
    memory: int | None
    busy_seconds: float
    incarnations: int
    readings: dict[str, float]


@final
class Statistics(msgspec.Struct, frozen=True):
    """All models by name, all groups by address."""

    models: dict[str, ModelStatistics]
    groups: dict[str, GroupStatistics]


@final
class Event(msgspec.Struct, frozen=True):
    """Something that a user may want to know when it happens.

    Attributes:
        kind: opened, failed, dead (of a group); loaded, unloaded, replaced, swapped, evicted (of a model).
        time: on the loop's clock, seconds.
        group: the group's name, or empty.
        model: the program's or model's name, or empty.
        detail: an error's text, a swap's seconds, for whom and how large what was evicted is, or empty.
    """

    kind: str
    time: float
    group: str = ""
    model: str = ""
    detail: str = ""


@final
class Decided(msgspec.Struct, frozen=True):
    """One decision of the policy.

    Attributes:
        time: on the loop's clock, seconds.
        group: for which group.
        decision: grant, bind or wait.
        model: whom it is about, or empty.
        frames: how many frames a grant allows.
        reason: the policy's own words.
    """

    time: float
    group: str
    decision: str
    model: str
    frames: int
    reason: str
