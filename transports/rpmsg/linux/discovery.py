"""What sysfs tells of DSPs, their rpmsg buses and endpoints; nothing is opened.

Indices of all kinds change when a DSP restarts, and gaps are filled: everything is found anew each time,
from the DSP's name in the device tree on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

__all__ = ["FIRMWARE_ENDPOINT", "Control", "Processor", "Sysfs"]

FIRMWARE_ENDPOINT: Final = 20
"""Where the firmware c7x_compute listens."""


@final
@dataclass(frozen=True, slots=True)
class Processor:
    """A remote processor.

    Attributes:
        name: in the device tree: `7e000000.dsp`.
        directory: its own in sysfs, called as its node in /dev: `remoteproc2`.
        state: `running`, `attached`, `offline`, `crashed`, ...; empty if it cannot be read.
        firmware: file name of what it runs, likewise.
    """

    name: str
    directory: Path
    state: str
    firmware: str


@final
@dataclass(frozen=True, slots=True)
class Control:
    """The control device of a DSP's rpmsg bus, where endpoints are made.

    Attributes:
        directory: its own in sysfs, called as its node in /dev: `rpmsg_ctrl0`.
    """

    directory: Path

    @property
    def bus(self) -> Path:
        """The virtio device below which all channels and endpoints of the DSP lie."""
        return self.directory.parents[2]


@final
class Sysfs:
    """A look at sysfs; every method looks anew, and takes what vanishes meanwhile for absent.

    Args:
        root: where sysfs is mounted.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def processors(self) -> list[Processor]:
        """Return all remote processors, by name."""
        found = [_processor(link) for link in _sorted(self._root, "class/remoteproc/remoteproc*")]
        return sorted(found, key=lambda processor: processor.name)

    def processor(self, name: str) -> Processor | None:
        """Return the processor of this name."""
        return next((each for each in self.processors() if each.name == name), None)

    def control(self, processor: Processor) -> Control | None:
        """Return the control device of a processor's bus; of several the one of the lowest index.

        Where the bus lies differs between kernels (below `rproc-virtio.K.auto` or `remoteprocR#vdev0buffer`),
        and so does what the control device belongs to (itself or the channel). It is always below the DSP.
        """
        for link in _sorted(self._root, "class/rpmsg/rpmsg_ctrl*"):
            directory = link.resolve()
            if processor.name in directory.parts:
                return Control(directory)
        return None

    def channels(self, control: Control) -> list[str]:
        """Return what is announced on the bus, as `name.source.destination`."""
        prefix = f"{control.bus.name}."
        return [path.name.removeprefix(prefix) for path in _sorted(control.bus, f"{prefix}*")]

    def endpoints(self, control: Control) -> dict[str, str]:
        """Return what the nodes in /dev of the bus's endpoints are called, by the endpoints' names."""
        beside = (
            link.resolve()
            for link in _sorted(self._root, "class/rpmsg/rpmsg*")
            if control.bus in link.resolve().parents
        )
        found: dict[str, str] = {}
        for directory in (*_sorted(control.directory, "rpmsg*"), *beside):
            if name := _text(directory / "name"):
                found.setdefault(name, directory.name)
        return found


def _processor(link: Path) -> Processor:
    return Processor(
        (link / "device").resolve().name, link.resolve(), _text(link / "state"), _text(link / "firmware")
    )


def _text(path: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text().strip()
    return ""


def _sorted(root: Path, pattern: str) -> Iterator[Path]:
    """Return what matches, by index: `rpmsg9` before `rpmsg10`."""
    found: list[Path] = []
    with suppress(OSError):
        found.extend(root.glob(pattern))
    return iter(sorted(found, key=lambda path: (len(path.name), path.name)))
