"""`repertory ping`: whether a DSP answers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import final

from repertory.models.errors import ConfigError, DeviceError, DeviceHung
from repertory.transports.real import RealWorld
from repertory.transports.rpmsg.ping import Answer, dsp_at, ping

from .command import Command, printed
from .interrupt import served

__all__ = ["Ping"]

_ANSWERS = 3  # that each may take the bound
_MARGIN = 10.0  # seconds for the node of the endpoint to appear, and for closing


@final
class Ping(Command):
    """Ask a C7x DSP for its firmware's version, uptime and counters of jobs, and time a round trip.

    Nothing is loaded or unloaded, and no memory is taken. A DSP that works for somebody answers only when
    its job is done; one that another process of this package has open is not asked.

    Examples:
      repertory ping
      repertory ping c7x://7e200000.dsp --json
    """

    name = "ping"
    summary = "ask a C7x DSP whether it is well"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "address",
            nargs="?",
            default="c7x://7e000000.dsp",
            help="a DSP (default c7x://7e000000.dsp; try sim+c7x://)",
        )
        parser.add_argument(
            "--timeout", type=float, default=15.0, help="seconds that an answer may take (default 15)"
        )
        parser.add_argument("--json", action="store_true", help="print JSON")

    def run(self, options: argparse.Namespace) -> None:
        if not options.timeout > 0:
            raise ConfigError(f"--timeout {options.timeout}: more than 0 seconds are wanted")
        answer = served(self.name, _ask, options.address, options.timeout)
        printed(answer, _text(answer), json=options.json)


async def _ask(address: str, bound: float) -> Answer:
    answers: list[Answer] = []
    async with RealWorld() as world:
        dsp = dsp_at(address, world)

        async def loop() -> None:
            answers.append(await ping(dsp, now=world.now, bound=bound))

        driver = world.spawn(loop, name="repertory: ping")
        if not await driver.join(_ANSWERS * bound + _MARGIN):
            raise DeviceHung(f"{address}: a system call does not return", family="c7x")
    if isinstance(driver.error, DeviceError):
        raise driver.error
    if driver.error is not None:
        raise DeviceError(f"{address}: {driver.error!r}", family="c7x") from driver.error
    return answers[0]


def _text(answer: Answer) -> Iterator[str]:
    what = "simulated " if answer.simulated else ""
    yield f"{what}{answer.dsp}: firmware {answer.firmware}, up {answer.uptime:.1f} s"
    yield f"jobs: {answer.jobs_completed} completed, {answer.jobs_failed} failed"
    yield f"round trip: {answer.round_trip * 1000:.3f} ms"
