"""A libmemx that works and breaks on demand, and what a process leaves behind."""

from __future__ import annotations

import gc
import subprocess
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import final
from urllib.parse import urlencode

import numpy as np
from numpy.typing import NDArray

from repertory.models.dfp import Dfp, Port, write
from repertory.models.program import Artifact, Program
from repertory.transports.device import Device
from repertory.transports.isolation.connect import isolated
from repertory.transports.isolation.device import Bounds
from repertory.transports.isolation.memory import NAME
from repertory.transports.memx.program import prepare_dfp
from repertory.transports.world import World

__all__ = [
    "ENVIRONMENT",
    "SHAPE",
    "Floats",
    "Stub",
    "address",
    "compiled",
    "echo",
    "hostile",
    "left",
    "prepare",
    "processes",
    "tensor",
]

Floats = NDArray[np.float32]

SHAPE = (1, 4, 6, 3)
ENVIRONMENT = {"STUB_IN": "4 6 1 3", "STUB_OUT": "4 6 1 3"}
BOUNDS = Bounds(open=60.0, bind=10.0, probe=10.0)
"""Where eight interpreters start at once, on cores that have other work too, a start takes its time."""


def prepare(artifact: Artifact, readings: Mapping[str, float]) -> Program:
    return prepare_dfp(artifact, simulated=False, chips=int(readings.get("chips", 0)))


@cache
def compiled() -> bytes:
    source = Path(__file__).with_name("stub.c")
    with TemporaryDirectory() as folder:
        library = Path(folder) / "libmemx.so"
        warnings = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter")
        subprocess.run(["cc", "-shared", "-fPIC", "-pthread", *warnings, source, "-o", library], check=True)
        return library.read_bytes()


def address(folder: Path, *, bind_bound: float = 1.0) -> str:
    """Return what a child opens for the stub in a folder."""
    options = {
        "isolation": "none",
        "library": folder / "libmemx.so",
        "lock_dir": folder,
        "manager_dir": folder,
        "dev_dir": folder,
        "window": 4,
        "bind_bound": bind_bound,
        "stall": 0.5,
    }
    return f"memx://0?{urlencode(options)}"


@final
class Stub:
    """A stub library in a folder of its own, and the device that it drives, in a child process.

    Attributes:
        address: what the child opens; only that child has it in its command line.
    """

    def __init__(self, folder: Path, *, bounds: Bounds = BOUNDS, bind_bound: float = 1.0) -> None:
        folder.mkdir(parents=True)
        self.__name__ = folder.name
        self._library = folder / "libmemx.so"
        self._library.write_bytes(compiled())
        self._fault = folder / "libmemx.so.fault"
        self._bounds = bounds
        self.address = address(folder, bind_bound=bind_bound)

    def __call__(self, world: World) -> Device:
        """Make the device: a source for `open_runtime`, named as its folder."""
        return isolated(self.address, world, prepare=prepare, bounds=self._bounds, environment=ENVIRONMENT)()

    def fail(self, state: str, way: str) -> None:
        """Let the next call of a state hang, crash, kill its process or fork one that stays."""
        fresh = self._fault.with_suffix(".new")
        fresh.write_text(f"{state} {way}\n")
        fresh.replace(self._fault)

    @property
    def armed(self) -> bool:
        """Whether what it was told is still to come."""
        return self._fault.exists()


@cache
def echo(name: str) -> bytes:
    """Return a compiled model as far as a stub looks; the stub gives its input back."""
    given, found = (Port(0, layer_name=port, shape=(4, 6, 1, 3), layout="NHWC") for port in ("x", "y"))
    return write(Dfp((name,), (given,), (found,), chips=4))


def tensor(number: int) -> Floats:
    """Return an input that no other number has."""
    return np.random.default_rng(number).standard_normal(SHAPE).astype(np.float32)


def hostile(folder: Path) -> str:
    """Return a folder with modules that an interpreter needs to start, or looks for; these end it."""
    folder.mkdir()
    for name in ("sitecustomize", "types", "enum", "encodings", "site", "json", "runpy"):
        (folder / f"{name}.py").write_text("import os\nos._exit(77)\n")
    return str(folder)


def processes(marker: str) -> list[int]:
    """Return the processes that have this text in their command line."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if marker.encode() in command:
            found.append(int(entry.name))
    return found


def left() -> tuple[int, list[str]]:
    """Return how many descriptors this process has, and memory, threads and zombies that children left."""
    gc.collect()
    files = [_target(link) for link in Path("/proc/self/fd").iterdir()]
    memory = [file for file in files if file.startswith(f"/memfd:{NAME}")]
    zombies = [pid for pid in _children() if _state(pid) == "Z"]
    threads = [t.name for t in threading.enumerate() if "isolated" in t.name or "process of" in t.name]
    return len(files), memory + threads + zombies


def _children() -> list[str]:
    tasks = Path("/proc/self/task").iterdir()
    return [pid for task in tasks for pid in (task / "children").read_text().split()]


def _state(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""
