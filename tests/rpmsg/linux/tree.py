"""A tree of sysfs and /dev in a temporary folder, as a machine with remote processors has it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

__all__ = ["HEAP", "SERVICE", "Layout", "Tree"]

Layout: TypeAlias = Literal["new", "old", "apart"]
"""`new`: below rproc-virtio, with a control device of its own; `old`: below a vdev buffer, with the control
device on the channel; `apart`: the bus is nowhere below the remote processor's own directory."""

SERVICE = "rpmsg_chrdev.-1.20"
HEAP = "carveout_vision_apps_shared-memories"


@dataclass
class Tree:
    """Directories and links; of nodes only the names.

    Attributes:
        late: nodes of endpoints that udev has not made yet, by their name: that many looks to go.
    """

    root: Path
    late: dict[str, int] = field(default_factory=dict[str, int])

    def __post_init__(self) -> None:
        for folder in (self.sysfs, self.dev / "dma_heap", self.sysfs / "class" / "rpmsg"):
            folder.mkdir(parents=True)

    @property
    def sysfs(self) -> Path:
        return self.root / "sys"

    @property
    def dev(self) -> Path:
        return self.root / "dev"

    def platform(self, name: str) -> Path:
        return self.sysfs / "devices" / "platform" / "bus@f0000" / name

    def processor(
        self, name: str, index: int, *, state: str = "running", firmware: str = "j722s-c71_0-fw"
    ) -> Path:
        """Add a remote processor, without a bus."""
        directory = self.platform(name) / "remoteproc" / f"remoteproc{index}"
        directory.mkdir(parents=True)
        (directory / "state").write_text(f"{state}\n")
        (directory / "firmware").write_text(f"{firmware}\n")
        (directory / "device").symlink_to(self.platform(name))
        self._link("remoteproc", directory)
        self.node(directory.name)
        return directory

    def bus(
        self,
        name: str,
        virtio: int,
        *,
        control: int | None = 0,
        layout: Layout = "new",
        channels: Iterable[str] = (SERVICE,),
    ) -> Path:
        """Add the bus of a processor that runs; return the directory of its control device."""
        directory = self._below(name, layout) / f"virtio{virtio}"
        directory.mkdir(parents=True)
        for channel in channels:
            (directory / f"virtio{virtio}.{channel}").mkdir()
        where = "rpmsg_ctrl.0.0" if layout != "old" else SERVICE
        if control is not None:
            found = directory / f"virtio{virtio}.{where}" / "rpmsg" / f"rpmsg_ctrl{control}"
            self.entry(found)
            return found
        return directory

    def dsp(self, name: str = "7e000000.dsp", index: int = 0, **bus: object) -> Path:
        """Add a DSP that runs c7x_compute."""
        self.processor(name, index)
        return self.bus(name, index, **bus)  # type: ignore[arg-type]

    def entry(self, directory: Path) -> None:
        """Add a device of the class rpmsg, and its node."""
        directory.mkdir(parents=True)
        (directory / "device").symlink_to(directory.parent.parent)
        self._link("rpmsg", directory)
        if not self.late.get(directory.name):
            self.node(directory.name)

    def endpoint(self, parent: Path, index: int, name: str) -> None:
        """Add an endpoint."""
        directory = parent / f"rpmsg{index}"
        self.entry(directory)
        (directory / "name").write_text(f"{name}\n")

    def remove(self, directory: Path) -> None:
        """Take a device of the class rpmsg away."""
        (self.sysfs / "class" / "rpmsg" / directory.name).unlink(missing_ok=True)
        (self.dev / directory.name).unlink(missing_ok=True)
        shutil.rmtree(directory)

    def stop(self, name: str, state: str = "offline") -> None:
        """Take a processor's bus away, with everything on it."""
        for link in (self.sysfs / "class" / "rpmsg").iterdir():
            if name in link.resolve().parts:
                (self.dev / link.name).unlink(missing_ok=True)
                link.unlink()
        for layout in ("new", "old", "apart"):
            shutil.rmtree(self._below(name, layout), ignore_errors=True)
        for directory in (self.platform(name) / "remoteproc").iterdir():
            (directory / "state").write_text(f"{state}\n")

    def node(self, name: str) -> None:
        (self.dev / name).touch()

    def heap(self, name: str = HEAP) -> None:
        self.node(f"dma_heap/{name}")

    def udev(self) -> None:
        """Let time pass for the nodes that are late."""
        for name in list(self.late):
            self.late[name] -= 1
            if self.late[name] == 0:
                self.node(name)

    def _below(self, name: str, layout: Layout) -> Path:
        if layout == "apart":
            return self.platform(name) / "elsewhere"
        directory = next((self.platform(name) / "remoteproc").iterdir())
        below = "rproc-virtio.4.auto" if layout == "new" else f"{directory.name}#vdev0buffer"
        return directory / below

    def _link(self, kind: str, directory: Path) -> None:
        folder = self.sysfs / "class" / kind
        folder.mkdir(parents=True, exist_ok=True)
        (folder / directory.name).symlink_to(directory)
