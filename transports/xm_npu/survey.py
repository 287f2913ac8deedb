"""What NPUs this machine has, and what is in the way of using them; nothing is opened or loaded."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, final

from repertory.models.errors import ConfigError

from .cl.loader import DEFAULT_DIRECTORY, LIBRARIES, NODE_HINT
from .ioctl.checks import check_process
from .ioctl.kernel import Kernel, LinuxKernel

__all__ = ["BoardFacts", "WayFacts", "survey"]

_RAW_IO: Final = 1 << 17  # CAP_SYS_RAWIO, among a process's effective capabilities
_ELF_BITS: Final = {b"\x7fELF\x01": 32, b"\x7fELF\x02": 64}


@final
@dataclass(frozen=True, slots=True)
class WayFacts:
    """One way to an NPU of this board.

    Attributes:
        address: that opens it so.
        node: of the NPU.
        via: `cl`, the vendor's library; `ioctl`, the driver's nodes.
        reason: what is in the way, or None.
    """

    address: str
    node: str
    via: Literal["cl", "ioctl"]
    reason: str | None


@final
@dataclass(frozen=True, slots=True)
class BoardFacts:
    """What a board has.

    Attributes:
        ways: to its NPUs, two to each.
        memory: node of the memory that models lie in, or None.
        library: file of the vendor's library, or None.
        reason: why there is no NPU, where there is none.
    """

    ways: tuple[WayFacts, ...]
    memory: str | None
    library: str | None
    reason: str | None


def survey(
    dev: str = "/dev",
    *,
    lib: str | None = None,
    kernel: Kernel | None = None,
    may_use: Callable[[Path], bool] | None = None,
    status: str = "/proc/self/status",
) -> BoardFacts:
    """Look at the nodes and the library's files.

    Args:
        dev: where device nodes lie.
        lib: folder of the vendor's libraries, or path of `libxmedia_cl.so`, as in the address.
        kernel: whom to ask for nodes and the bits of this process.
        may_use: whether this process may read and write a node.
        status: where the kernel tells what this process may do.
    """
    look = _Look(
        Path(dev),
        _library(Path(lib or DEFAULT_DIRECTORY)),
        LinuxKernel() if kernel is None else kernel,
        _accessible if may_use is None else may_use,
        Path(status),
    )
    return look.board()


@final
@dataclass(frozen=True, slots=True)
class _Look:
    dev: Path
    library: Path
    kernel: Kernel
    may_use: Callable[[Path], bool]
    status: Path

    def board(self) -> BoardFacts:
        names = self.kernel.nodes(self.dev)
        nodes = [self.dev / name for name in names if name.startswith("npu.")]
        ways = tuple(self._way(node, via) for node in nodes for via in ("cl", "ioctl"))
        return BoardFacts(
            ways,
            str(self._memory) if self._memory.name in names else None,
            str(self.library) if self.library.is_file() else None,
            None if nodes else f"{self.dev}/npu.0 is not there; {NODE_HINT}",
        )

    @property
    def _memory(self) -> Path:
        return self.dev / "mmz_userdev"

    def _way(self, node: Path, via: Literal["cl", "ioctl"]) -> WayFacts:
        target = "0" if str(node) == "/dev/npu.0" else str(node)
        address = f"xm-npu://{target}" + ("?via=ioctl" if via == "ioctl" else "")
        own = self._no_library() if via == "cl" else self._no_pointers()
        return WayFacts(address, str(node), via, own or self._no_nodes(node))

    def _no_library(self) -> str | None:
        if not self.library.is_file():
            return f"{self.library}: not there; name the folder of the vendor's libraries: lib="
        bits = _bits(self.library)
        if bits is None:
            return f"{self.library}: no library"
        if bits != self.kernel.bits:
            return f"{self.library} has {bits} bits, this Python {self.kernel.bits}"
        return None

    def _no_pointers(self) -> str | None:
        try:
            check_process(self.kernel)
        except ConfigError as error:
            return str(error)
        return None

    def _no_nodes(self, node: Path) -> str | None:
        if self._memory.name not in self.kernel.nodes(self.dev):
            return f"{self._memory}: not there; {NODE_HINT}"
        for each in (node, self._memory):
            if not self.may_use(each):
                return f"{each}: no permission to read and write; be root"
        return None if self._raw_io() else f"{self._memory}: this process lacks CAP_SYS_RAWIO; be root"

    def _raw_io(self) -> bool:
        """Whether this process may do raw I/O; where nobody tells, that is for the node to say."""
        try:
            lines = self.status.read_text().splitlines()
            return all(int(line[7:], 16) & _RAW_IO for line in lines if line.startswith("CapEff:"))
        except (OSError, ValueError):
            return True


def _library(place: Path) -> Path:
    return place / LIBRARIES[-1] if place.is_dir() else place


def _bits(file: Path) -> int | None:
    try:
        with file.open("rb") as opened:
            return _ELF_BITS.get(opened.read(5))
    except OSError:
        return None


def _accessible(node: Path) -> bool:
    return os.access(node, os.R_OK | os.W_OK)
