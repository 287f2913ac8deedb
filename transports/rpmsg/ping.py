"""Asking a DSP how it is: its firmware's version, uptime and counters, and how fast it answers."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

from repertory.models.errors import ConfigError
from repertory.transports.address import Address
from repertory.transports.world import World

from .client import Client
from .dsp import Dsp

__all__ = ["Answer", "dsp_at", "ping"]

_DSPS: Final = ("c7x", "sim+c7x")


@final
@dataclass(frozen=True, slots=True)
class Answer:
    """What a DSP says of itself.

    Attributes:
        dsp: its name.
        simulated: whether no hardware stands behind it.
        firmware: version of the protocol, `2.0.0`.
        uptime: seconds since the firmware began; it wraps after 49 days.
        jobs_completed: runs that reached a module and ended well.
        jobs_failed: runs that reached a module and did not.
        round_trip: seconds from a PING to its answer.
    """

    dsp: str
    simulated: bool
    firmware: str
    uptime: float
    jobs_completed: int
    jobs_failed: int
    round_trip: float


def dsp_at(text: str, world: World) -> Dsp:
    """Return the lowest interface of the DSP at an address; nothing is opened yet.

    Raises:
        ConfigError: the address is malformed, none of a DSP, or asks for a process of its own.
    """
    address = Address.parse(text)
    if address.scheme not in _DSPS:
        raise ConfigError(
            f"{text}: no DSP's address; one begins with {' or '.join(f'{s}://' for s in _DSPS)}"
        )
    if ("isolation", "process") in address.parameters:
        raise ConfigError(f"{text}: a DSP is pinged from this process; leave isolation=process away")
    if address.scheme == "c7x":
        from .hardware import hardware_dsp  # noqa: PLC0415  (only what is asked for)

        return hardware_dsp(address, world)
    from .simulated import simulated_dsp  # noqa: PLC0415

    return simulated_dsp(address, world, computes=False)


async def ping(dsp: Dsp, *, now: Callable[[], float], bound: float) -> Answer:
    """Connect, ask, and leave again; driver code. No memory is taken, and nothing is loaded or unloaded.

    Args:
        dsp: the lowest interface; it is closed at the end.
        now: the world's clock.
        bound: seconds for each of three answers; the first waits for jobs of a client before.

    Raises:
        DeviceError: it is not there, is in use, does not answer, or is another firmware.
    """
    client = Client(dsp, now=now, seq=itertools.count(secrets.randbits(32)))  # no stray of before fits
    try:
        await client.open(bound=bound)
        start = now()
        pong = await client.ping(bound=bound)
        round_trip = now() - start
        status = await client.status(bound=bound)
    finally:
        client.close()
    return Answer(
        dsp.name,
        dsp.simulated,
        ".".join(str(part) for part in pong.version.to_bytes(3, "big")),
        status.uptime_ms / 1000,
        status.jobs_completed,
        status.jobs_failed,
        round_trip,
    )
