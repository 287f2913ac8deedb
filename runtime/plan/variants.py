"""What if: the same load on another number of groups, with another window, or shorter."""

from __future__ import annotations

import msgspec

from repertory.models.errors import ConfigError
from repertory.transports.address import Address

from .generic import MAX_GROUPS, MAX_WINDOW
from .trace import GroupLoad, Trace

__all__ = ["shortened", "with_groups", "with_window"]


def with_groups(trace: Trace, count: int) -> Trace:
    """Return the load on so many groups like its first one, each of which may serve every model.

    Raises:
        ConfigError: the count is out of its range.
    """
    if not 1 <= count <= MAX_GROUPS:
        raise ConfigError(f"groups {count!r} came, a whole number from 1 to {MAX_GROUPS} is wanted")
    first = trace.groups[0].address
    scheme, rest = first.split("://", 1)
    query = rest.partition("?")[2]
    tail = f"?{query}" if query else ""
    return msgspec.structs.replace(
        trace,
        groups=tuple(GroupLoad(f"{scheme}://{index}{tail}") for index in range(count)),
        models=tuple(msgspec.structs.replace(model, groups=None) for model in trace.models),
    )


def with_window(trace: Trace, window: int) -> Trace:
    """Return the load on groups that may have so many frames started and not completed.

    Raises:
        ConfigError: the window is out of its range, or a group is not of the generic family.
    """
    if not 1 <= window <= MAX_WINDOW:
        raise ConfigError(f"window {window!r} came, a whole number from 1 to {MAX_WINDOW} is wanted")
    addresses = [Address.parse(group.address) for group in trace.groups]
    for address in addresses:
        if address.scheme != "sim":
            raise ConfigError(f"{address.text}: only a group sim:// has a window that can be set")
    groups = tuple(GroupLoad(address.given(window=str(window)).text) for address in addresses)
    return msgspec.structs.replace(trace, groups=groups)


def shortened(trace: Trace, seconds: float) -> Trace:
    """Return the first seconds of the load.

    Raises:
        ConfigError: it is no longer than that, or seconds are not above 0.
    """
    if not 0 < seconds <= trace.seconds:
        raise ConfigError(f"seconds {seconds:g} came, more than 0 and at most {trace.seconds:g} are wanted")
    return msgspec.structs.replace(
        trace,
        seconds=float(seconds),
        arrivals=tuple(arrival for arrival in trace.arrivals if arrival.time < seconds),
    )
