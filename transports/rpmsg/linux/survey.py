"""What DSPs this machine has, and what is in the way of using them; nothing is opened."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

from repertory.models.errors import DeviceLost

from .checks import find_control
from .discovery import Processor, Sysfs
from .heap import find_heap
from .kernel import Kernel, LinuxKernel
from .permission import forbidden

__all__ = ["DspFacts", "survey"]


@final
@dataclass(frozen=True, slots=True)
class DspFacts:
    """A DSP of this machine.

    Attributes:
        address: that opens it.
        state: of its remote processor: `running`, `offline`, ...
        firmware: file name of its firmware.
        control: node where its endpoints are made, or None.
        processor: node of the remote processor.
        heap: node of the heap that its memory comes from, or None.
        reason: what is in the way of using it, or None.
    """

    address: str
    state: str
    firmware: str
    control: str | None
    processor: str
    heap: str | None
    reason: str | None


def survey(
    sysfs: str = "/sys", dev: str = "/dev", *, heap: str | None = None, kernel: Kernel | None = None
) -> list[DspFacts]:
    """Look at all remote processors that are DSPs (`*.dsp` in the device tree), by name.

    Args:
        sysfs: where sysfs is mounted.
        dev: where device nodes lie.
        heap: name or path of the heap, as in the address.
        kernel: whom to ask for permissions.
    """
    look = _Look(Sysfs(Path(sysfs)), Path(dev), heap, LinuxKernel() if kernel is None else kernel)
    return [look.at(each) for each in look.sysfs.processors() if each.name.endswith(".dsp")]


@final
@dataclass(frozen=True, slots=True)
class _Look:
    sysfs: Sysfs
    dev: Path
    heap: str | None
    kernel: Kernel

    def at(self, processor: Processor) -> DspFacts:
        control = self.sysfs.control(processor)
        heap, missing = self._heap()
        return DspFacts(
            address=f"c7x://{processor.name}",
            state=processor.state,
            firmware=processor.firmware,
            control=None if control is None else str(self.dev / control.directory.name),
            processor=str(self.dev / processor.directory.name),
            heap=None if heap is None else str(heap),
            reason=self._in_the_way(processor, heap) or missing,
        )

    def _heap(self) -> tuple[Path | None, str | None]:
        try:
            return find_heap(self.dev, self.heap), None
        except DeviceLost as error:
            return None, str(error)

    def _in_the_way(self, processor: Processor, heap: Path | None) -> str | None:
        try:
            find_control(self.sysfs, self.dev, processor, self.kernel)
        except DeviceLost as error:
            return str(error)
        node = self.dev / processor.directory.name
        if not node.exists():
            return f"{node}: not there: this kernel cannot attach memory to remote processors"
        for each in (node, heap):
            if each is not None and not self.kernel.may_use(each):
                return str(forbidden(each, call="open"))
        return None
