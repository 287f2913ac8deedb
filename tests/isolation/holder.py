"""A program that serves one request on a stub in a child process: `holder <folder> [<state that hangs>]`.

Without a state it ends in order; with one it holds on until somebody kills it. `idle` hangs nowhere.
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from repertory.runtime.opening import open_runtime
from repertory.transports.isolation.device import Bounds

from .support import Stub, echo, tensor

FOR_EVER = 600.0
BOUNDS = Bounds(open=FOR_EVER, bind=FOR_EVER)


async def main(folder: Path, state: str | None) -> None:
    library = Stub(folder, bounds=BOUNDS, bind_bound=FOR_EVER)
    if state is not None:
        library.fail(state, "hang")
    async with open_runtime([library]) as runtime:
        model = await runtime.load(echo("one"))
        answer = await model.infer(tensor(1))
        print("answered", answer.tobytes() == tensor(1).tobytes(), flush=True)  # noqa: T201
        if state is not None:
            await anyio.sleep_forever()
    print("closed", flush=True)  # noqa: T201


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
