"""Loads from TOML: what somebody writes down who asks whether one more camera would fit.

::

    seconds = 60
    groups = 2                # like devices; or [[group]] with the address of each
    swap_ms = 20

    [[model]]
    name = "entrance"
    service_ms = 6
    deadline_ms = 66
    fps = 15                  # a camera; or rate, burst_rate or clients

Without `seconds` it is 60, without `seed` 1. A model with no load at all is loaded and idle. What a swap
takes is the device's affair, and so is what a request takes where a model has a `path`: `service_ms` counts
for the bound alone then.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Final, TypeAlias, final

import msgspec
import numpy as np

from repertory.models.errors import ConfigError
from repertory.runtime.toml_table import decoded
from repertory.transports.address import Address

from .arrivals import Times, bursts, camera, check_load, merged, random_source, renewal
from .generic import MAX_GROUPS, MAX_SWAP, generic_groups
from .trace import GroupLoad, ModelLoad, Trace

__all__ = ["MAX_TOML", "read_toml"]

MAX_TOML: Final = 1 << 20
"""Bytes of a description."""

_STREAM: Final = 100  # apart from the families of `generators`

_Duration: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=MAX_SWAP * 1e3)]
_Pause: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=MAX_SWAP * 1e3)]
_Rate: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=1e6)]
_Share: TypeAlias = Annotated[float, msgspec.Meta(ge=0, lt=1)]

_LOADS: Final = {
    "fps": ("jitter_ms", "dropped"),
    "rate": ("cv",),
    "burst_rate": ("burst_seconds", "burst_off"),
    "clients": (),
}
"""The kinds of load, and the keys that shape each."""


@final
class _Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[[group]]`: a device by its address."""

    address: str


@final
class _Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[[model]]`: a model and its load, which is one of fps, rate, burst_rate and clients, or none."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    service_ms: _Duration
    deadline_ms: _Duration | None = None
    priority: Annotated[int, msgspec.Meta(ge=-128, le=127)] = 0
    weight: Annotated[float, msgspec.Meta(gt=0, le=1e6)] = 1.0
    max_wait: Annotated[float, msgspec.Meta(gt=0, le=MAX_SWAP)] = 1.0
    path: str | None = None
    groups: Annotated[list[int | str], msgspec.Meta(min_length=1)] | None = None
    fps: _Rate | None = None
    jitter_ms: _Pause | None = None
    dropped: _Share | None = None
    rate: _Rate | None = None
    cv: Annotated[float, msgspec.Meta(gt=0, le=20)] | None = None
    burst_rate: _Rate | None = None
    burst_seconds: Annotated[int, msgspec.Meta(ge=1, le=3600)] | None = None
    burst_off: _Share | None = None
    clients: Annotated[int, msgspec.Meta(ge=1, le=10_000)] | None = None

    @property
    def per_second(self) -> float:
        """Requests a second to be expected."""
        return self.fps or self.rate or self.burst_rate or 0.0

    def draw(self, rng: np.random.Generator, seconds: float) -> Times:
        """Draw its requests."""
        if self.fps is not None:
            jitter = 1.0 if self.jitter_ms is None else self.jitter_ms
            return camera(rng, self.fps, seconds, jitter=jitter / 1e3, dropped=self.dropped or 0.0)
        if self.rate is not None:
            return renewal(rng, self.rate, seconds, cv=self.cv or 1.0)
        if self.burst_rate is not None:
            off = 0.35 if self.burst_off is None else self.burst_off
            return bursts(rng, self.burst_rate, seconds, block=self.burst_seconds or 5, off=off)
        return np.empty(0)


@final
class _Description(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The whole file."""

    model: Annotated[list[_Model], msgspec.Meta(min_length=1, max_length=4096)]
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=256)] | None = None
    seconds: Annotated[float, msgspec.Meta(gt=0, le=1e9)] = 60.0
    seed: Annotated[int, msgspec.Meta(ge=0)] = 1
    groups: Annotated[int, msgspec.Meta(ge=1, le=MAX_GROUPS)] | None = None
    swap_ms: _Pause | None = None
    window: Annotated[int, msgspec.Meta(ge=1, le=4096)] | None = None
    group: Annotated[list[_Group], msgspec.Meta(min_length=1, max_length=MAX_GROUPS)] | None = None


def read_toml(path: Path, *, seed: int | None = None) -> Trace:
    """Read a load from a TOML file; see the module for what it looks like.

    Args:
        path: the file; a model's `path` is relative to its folder.
        seed: in place of the file's.

    Raises:
        ConfigError: names the file, the table and the key that is wrong, what came, and what is wanted.
    """
    try:
        return _trace(_decoded(path), path, seed)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def _decoded(path: Path) -> _Description:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_TOML + 1)
    except (OSError, ValueError) as error:
        raise ConfigError(getattr(error, "strerror", None) or str(error)) from error
    if len(data) > MAX_TOML:
        raise ConfigError(f"at most {MAX_TOML} bytes are read")
    return decoded(data, _Description)


def _trace(read: _Description, path: Path, seed: int | None) -> Trace:
    seed = read.seed if seed is None else seed
    rng = random_source(seed, _STREAM)
    groups = _groups(read)
    _check(read)
    models = tuple(_model(model, read, groups, path.parent) for model in read.model)
    check_load(read.seconds, sum(model.per_second for model in read.model))
    times = [model.draw(rng, read.seconds) for model in read.model]
    return Trace(
        name=read.name or path.stem,
        seconds=read.seconds,
        groups=groups,
        models=models,
        arrivals=merged(times, models),
        seed=seed,
    )


def _groups(read: _Description) -> tuple[GroupLoad, ...]:
    if read.group is None:
        if read.groups is None or read.swap_ms is None:
            raise ConfigError("give groups and swap_ms, or [[group]] with an address for each")
        return generic_groups(read.groups, swap=read.swap_ms / 1e3, window=read.window or 1)
    for key in ("groups", "swap_ms", "window"):
        if getattr(read, key) is not None:
            raise ConfigError(f"{key} and [[group]] exclude each other: an address says it")
    addresses = [group.address for group in read.group]
    for address in addresses:
        Address.parse(address)
        if addresses.count(address) > 1:
            raise ConfigError(f"the address {address} is given twice: give each device its own index")
    return tuple(GroupLoad(address) for address in addresses)


def _check(read: _Description) -> None:
    """Check that each model is told apart, and has one kind of load and the keys of that kind alone."""
    names = [model.name for model in read.model]
    for model in read.model:
        if names.count(model.name) > 1:
            raise ConfigError(f"two models are named {model.name}")
        kinds = [kind for kind in _LOADS if getattr(model, kind) is not None]
        if len(kinds) > 1:
            raise ConfigError(f"model {model.name}: {kinds[0]} and {kinds[1]} exclude each other")
        for kind, keys in _LOADS.items():
            stray = [key for key in keys if getattr(model, key) is not None and kind not in kinds]
            if stray:
                raise ConfigError(f"model {model.name}: {stray[0]} goes with {kind}, which is missing")


def _model(read: _Model, whole: _Description, groups: tuple[GroupLoad, ...], folder: Path) -> ModelLoad:
    return ModelLoad(
        name=read.name,
        service=read.service_ms / 1e3,
        swap=None if whole.swap_ms is None else whole.swap_ms / 1e3,
        deadline=math.inf if read.deadline_ms is None else read.deadline_ms / 1e3,
        priority=read.priority,
        weight=read.weight,
        max_wait=read.max_wait,
        clients=read.clients or 0,
        path=None if read.path is None else str(folder / read.path),
        groups=_indices(read, groups),
    )


def _indices(read: _Model, groups: tuple[GroupLoad, ...]) -> tuple[int, ...] | None:
    """Return which groups may serve a model: by number from 0, or by address."""
    if read.groups is None:
        return None
    addresses = [group.address for group in groups]
    found: set[int] = set()
    for each in read.groups:
        if each not in range(len(groups)) and each not in addresses:
            raise ConfigError(f"model {read.name}: there is no group {each!r}, numbered from 0 or by address")
        found.add(each if isinstance(each, int) else addresses.index(each))
    return tuple(sorted(found))
