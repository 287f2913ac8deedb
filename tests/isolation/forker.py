"""`forker <folder>`: a program that forks while it serves; the fork leaves by an exception."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio

from repertory.runtime.opening import open_runtime

from .support import Stub, echo, tensor


async def _tick() -> None:
    """Wake the loop: ending in the fork, asyncio takes its wake-up out of the epoll set that both share."""
    while True:  # noqa: ASYNC110  (there is no event: it is what the fork has broken)
        await anyio.sleep(0.02)


async def main(folder: Path) -> None:
    async with anyio.create_task_group() as tasks, open_runtime([Stub(folder)]) as runtime:
        tasks.start_soon(_tick)
        model = await runtime.load(echo("one"))
        await model.infer(tensor(1))
        fork = os.fork()
        if fork == 0:
            raise SystemExit
        await anyio.wait_readable(watch := os.pidfd_open(fork))
        os.close(watch)
        answer = await model.infer(tensor(2))
        (group,) = runtime.statistics().groups.values()
        same = answer.tobytes() == tensor(2).tobytes()
        print("answered", same, "by incarnation", group.incarnations, flush=True)  # noqa: T201
        tasks.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]))
