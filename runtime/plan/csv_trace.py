"""Loads from CSV: a line for each request, after `# key=value` lines that tell about the devices.

::

    # trace=lobby
    # seconds=60
    # groups=2
    # models=8
    # service_ms=6
    # swap_ms=20
    time_s,model,deadline_s,priority
    0.003149,5,0.066,0
    0.007695,4,0.066,0

Times are seconds from the beginning in their order, equal ones allowed; models are numbers from 0; a
deadline is in seconds after the request, or `inf`; a larger priority is more urgent. `seed` is kept where it
is told, and other keys are passed over.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, BinaryIO, Final, final

import msgspec

from repertory.models.errors import ConfigError

from .arrivals import MAX_ARRIVALS
from .generic import MAX_GROUPS, MAX_SWAP, generic_groups
from .trace import Arrival, ModelLoad, Trace

__all__ = ["COLUMNS", "LATE", "MAX_LINE", "MAX_MODELS", "read_csv"]

COLUMNS: Final = "time_s,model,deadline_s,priority"
"""The line before the first request."""

LATE: Final = 1.0
"""Seconds after the end at which a request may still come: cameras are late by their jitter."""

MAX_LINE: Final = 1024
"""Bytes of a line."""

MAX_MODELS: Final = 4096
"""Models of one trace."""

_PRIORITIES: Final = range(-128, 128)


@final
class _Head(msgspec.Struct, frozen=True, kw_only=True):
    """What a file tells about its load, or the caller in its place."""

    trace: str
    seed: Annotated[int, msgspec.Meta(ge=0)] | None = None
    seconds: Annotated[float, msgspec.Meta(gt=0, le=1e9)]
    groups: Annotated[int, msgspec.Meta(ge=1, le=MAX_GROUPS)]
    models: Annotated[int, msgspec.Meta(ge=1, le=MAX_MODELS)]
    service_ms: Annotated[float, msgspec.Meta(gt=0, le=MAX_SWAP * 1e3)]
    swap_ms: Annotated[float, msgspec.Meta(ge=0, le=MAX_SWAP * 1e3)]


@final
class _Lines(Iterator[str]):
    """The lines of a file, counted, without those that are empty."""

    def __init__(self, name: str, file: BinaryIO) -> None:
        self.name = name
        self._file = file
        self._number = 0

    def __next__(self) -> str:
        while data := self._file.readline(MAX_LINE + 1):
            self._number += 1
            if len(data) > MAX_LINE:
                raise self.wrong(f"more than {MAX_LINE} bytes in a line")
            try:
                text = data.decode().strip()
            except UnicodeDecodeError as error:
                raise self.wrong("this is no text") from error
            if text:
                return text
        raise StopIteration

    def wrong(self, what: str) -> ConfigError:
        """Word a complaint about the line that was read last."""
        return ConfigError(f"{self.name}, line {self._number}: {what}")


def read_csv(
    path: Path | str,
    *,
    window: int = 1,
    seconds: float | None = None,
    groups: int | None = None,
    models: int | None = None,
    service_ms: float | None = None,
    swap_ms: float | None = None,
) -> Trace:
    """Read a load from a CSV file; see the module for what it looks like.

    Args:
        path: the file; `-` for the standard input.
        window: frames that each device may have started and not completed.
        seconds: how long requests come, in place of what the file tells, as all that follow.
        groups: how many devices there are.
        models: how many models.
        service_ms: device time of a request.
        swap_ms: time to make a model resident.

    Raises:
        ConfigError: the file cannot be read or is malformed, which names the line; or something is told
            nowhere.
    """
    given = {
        "seconds": seconds,
        "groups": groups,
        "models": models,
        "service_ms": service_ms,
        "swap_ms": swap_ms,
    }
    try:
        if str(path) == "-":
            return _read(_Lines("standard input", sys.stdin.buffer), given, window)
        if "\0" in str(path):
            raise ConfigError(f"{str(path)!r} is no path: it holds a NUL")
        with Path(path).open("rb") as file:
            return _read(_Lines(str(path), file), given, window)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error


def _read(lines: _Lines, given: dict[str, float | None], window: int) -> Trace:
    head = _head(lines, given)
    arrivals = _arrivals(lines, head)
    return Trace(
        name=head.trace,
        seconds=head.seconds,
        groups=generic_groups(head.groups, swap=head.swap_ms / 1e3, window=window),
        models=_models(head, arrivals),
        arrivals=arrivals,
        seed=head.seed,
    )


def _head(lines: _Lines, given: dict[str, float | None]) -> _Head:
    told = _told(lines)
    fields = {"trace": Path(lines.name).stem} | told | {k: v for k, v in given.items() if v is not None}
    missing = [key for key in given if key not in fields]
    if missing:
        raise ConfigError(f"{lines.name}: it has no line `# {missing[0]}=`, and none was given in its place")
    try:
        return msgspec.convert(fields, _Head, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{lines.name}: {error}") from error


def _told(lines: _Lines) -> dict[str, str]:
    """Return what stands before the requests, and read up to there."""
    told: dict[str, str] = {}
    for text in lines:
        line = text.removeprefix("\ufeff")
        if line == COLUMNS:
            return told
        if not line.startswith("#"):
            raise lines.wrong(f"{line[:80]!r} came before the line {COLUMNS}")
        key, separator, value = (part.strip() for part in line[1:].partition("="))
        if key in told:
            raise lines.wrong(f"{key} is told twice")
        if separator:
            told[key] = value
    raise ConfigError(f"{lines.name}: the line {COLUMNS} is missing")


def _arrivals(lines: _Lines, head: _Head) -> tuple[Arrival, ...]:
    arrivals: list[Arrival] = []
    last = 0.0
    for text in lines:
        arrival = _arrival(lines, text)
        _check(lines, arrival, head)
        if arrival.time < last:
            raise lines.wrong(f"time {arrival.time:g} comes after {last:g}: they are to be in order")
        last = arrival.time
        if len(arrivals) == MAX_ARRIVALS:
            raise lines.wrong(f"at most {MAX_ARRIVALS} requests are read")
        arrivals.append(arrival)
    if not arrivals:
        raise ConfigError(f"{lines.name}: there are no requests in it")
    return tuple(arrivals)


def _arrival(lines: _Lines, text: str) -> Arrival:
    fields = text.split(",")
    if len(fields) != len(Arrival._fields) or not text.isascii() or "_" in text:
        raise lines.wrong(f"{text[:80]!r} came, {COLUMNS} is wanted")
    time, model, deadline, priority = fields
    try:
        return Arrival(float(time), int(model), float(deadline), int(priority))
    except ValueError as error:
        raise lines.wrong(f"{text[:80]!r} came, {COLUMNS} is wanted: {error}") from error


def _check(lines: _Lines, arrival: Arrival, head: _Head) -> None:
    if not 0 <= arrival.time < math.inf:
        raise lines.wrong(f"time {arrival.time} came, finite seconds from 0 on are wanted")
    if arrival.time > head.seconds + LATE:
        raise lines.wrong(f"time {arrival.time:g} came, and the trace ends after {head.seconds:g} seconds")
    if not 0 <= arrival.model < head.models:
        raise lines.wrong(f"model {arrival.model} came, and there are {head.models}, numbered from 0")
    if not arrival.deadline > 0:
        raise lines.wrong(f"deadline {arrival.deadline} came, seconds above 0 or inf are wanted")
    if arrival.priority not in _PRIORITIES:
        raise lines.wrong(f"priority {arrival.priority} came, -128 to 127 is wanted")


def _models(head: _Head, arrivals: Iterable[Arrival]) -> tuple[ModelLoad, ...]:
    """Return the models; what the first request of each says is taken for what it usually says."""
    first: dict[int, Arrival] = {}
    for arrival in arrivals:
        first.setdefault(arrival.model, arrival)
    none = Arrival(0.0, 0, math.inf, 0)
    usual = [first.get(index, none) for index in range(head.models)]
    return tuple(
        ModelLoad(
            name=f"m{index}",
            service=head.service_ms / 1e3,
            swap=head.swap_ms / 1e3,
            deadline=arrival.deadline,
            priority=arrival.priority,
        )
        for index, arrival in enumerate(usual)
    )
