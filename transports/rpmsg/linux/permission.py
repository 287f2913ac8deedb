"""Who may use the device nodes: by default only root, and with this udev rule a group."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from repertory.models.errors import DeviceLost

__all__ = ["REMEDY", "UDEV_RULES", "forbidden"]

UDEV_RULES: Final = """\
# TI C7x DSPs: let members of the group `video` use them without being root.
#
#   sudo cp 60-repertory-c7x.rules /etc/udev/rules.d/
#   sudo udevadm control --reload
#   sudo udevadm trigger --action=change --subsystem-match=rpmsg --subsystem-match=remoteproc \\
#     --subsystem-match=dma_heap
#   sudo usermod -aG video "$USER"     # then log in again
#
# Whoever is in that group can also stop the remote processors, and read and write their shared memory.
SUBSYSTEM=="rpmsg", KERNEL=="rpmsg*", GROUP="video", MODE="0660"
SUBSYSTEM=="remoteproc", KERNEL=="remoteproc*", GROUP="video", MODE="0660"
SUBSYSTEM=="dma_heap", KERNEL=="carveout_*", GROUP="video", MODE="0660"
"""

REMEDY: Final = "be root, or put what `repertory devices --udev` prints into /etc/udev/rules.d/"


def forbidden(node: Path, *, call: str) -> DeviceLost:
    """Return the error of a node that this process may not use."""
    return DeviceLost(f"{node}: no permission to read and write; {REMEDY}", family="c7x", call=call)
