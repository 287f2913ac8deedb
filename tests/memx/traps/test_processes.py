"""What only a whole process shows: a fork, and a library that does not let its process end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.isolation.support import processes
from tests.memx.stub import SOURCE, Stub

from .rig import A, content

FORK = """
import asyncio
import os
import sys

import anyio
import numpy as np

from repertory.models.errors import RuntimeClosed
from repertory.runtime.opening import open_runtime
from repertory.transports.memx.device import MemxDevice
from repertory.transports.memx.simulator.parameters import SimulatedMx3
from repertory.transports.memx.simulator.libmemx import SimulatedLibmemx

IMAGE = np.ones((1, 3, 4, 6), np.float32)
libraries = []


def device(world):
    libraries.append(SimulatedLibmemx(world, SimulatedMx3(chips=2, answers="hash")))
    return MemxDevice(world, lambda: libraries[0], 0, simulated=True, window=8, lock=None)


async def naked():
    library = libraries[0]
    written = await library.memx_stream_ifmap(0, 0, np.ones((4, 6, 3), np.float32), 100)
    read = await library.memx_stream_ofmap(0, 0, np.empty((4, 6, 2), np.float32), 100)
    return f"libmemx: {written:#x} {read:#x}"


async def child(model):
    lines = []
    try:
        with anyio.fail_after(5):
            await model.infer(IMAGE)
    except RuntimeClosed as error:
        lines.append(str(error))
    lines.append(await naked())
    os.write(1, "".join(f"{line}\\n" for line in lines).encode())
    os._exit(0)


async def main():
    async with open_runtime([device]) as rt:
        model = await rt.load(sys.argv[2], warm=True)
        process = os.fork()
        if process == 0 and sys.argv[1] == "trio":
            await child(model)
        elif process == 0:  # asyncio knows that its loop does not run here
            asyncio.run(child(model))
        os.waitpid(process, 0)
        await model.infer(IMAGE)
    print("the parent goes on")


anyio.run(main, backend=sys.argv[1])
"""

FORKING = "ignore:This process:DeprecationWarning"
"""Newer Pythons warn of forks beside threads; the child here touches none of them."""


def test_the_child_of_a_fork_is_told_to_open_its_own(anyio_backend_name: str, tmp_path: Path) -> None:
    file = tmp_path / "net.dfp"
    file.write_bytes(content(A))
    run = subprocess.run(
        [sys.executable, "-W", "error", "-W", FORKING, "-c", FORK, anyio_backend_name, str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    refusal, bare, parent = run.stdout.splitlines()
    assert "does not survive a fork: open one here" in refusal
    assert bare == "libmemx: 0x0 0x1300001d"  # written, and nothing ever comes
    assert parent == "the parent goes on"


HANGING = """
#include <unistd.h>
__attribute__((destructor)) static void unloaded(void) { for (;;) pause(); }
"""


@pytest.fixture
def hanging(tmp_path: Path) -> Stub:
    """A library whose destructor never returns, as that of one with a hung device."""
    stub = Stub(tmp_path)
    command = ["cc", "-shared", "-fPIC", "-o", stub.path, str(SOURCE), "-x", "c", "-"]
    subprocess.run(command, input=HANGING.encode(), check=True)
    stub.answer("memx_operation_get_device_count", 0, 1)
    stub.answer("memx_get_total_chip_count", 0, 4)
    return stub


NAKED = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"

SERVING = """
import sys

import anyio

from repertory.runtime.opening import open_runtime


async def main(address):
    async with open_runtime([address]):
        print("open")


anyio.run(main, sys.argv[1], backend=sys.argv[2])
"""


def _ends(script: str, *arguments: str, patience: float) -> bool:
    """Whether a program comes to its end; one that does not is killed."""
    with subprocess.Popen([sys.executable, "-c", script, *arguments], stdout=subprocess.DEVNULL) as process:
        try:
            return process.wait(patience) == 0
        except subprocess.TimeoutExpired:
            process.kill()
            return False


def test_a_library_that_does_not_unload_lets_the_program_end(
    hanging: Stub, tmp_path: Path, anyio_backend_name: str
) -> None:
    assert not _ends(NAKED, hanging.path, patience=1)

    where = f"lock_dir={tmp_path}&dev_dir={tmp_path}&manager_dir={tmp_path}"
    assert _ends(SERVING, f"memx://0?library={hanging.path}&{where}", anyio_backend_name, patience=20)
    assert hanging.calls()[-1] == "memx_unlock 0"
    assert processes(quote(str(tmp_path), safe="")) == []
