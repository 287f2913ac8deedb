"""From an address, or a path, to the library that a script calls."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Final

from repertory.models.errors import ConfigError
from repertory.transports.address import Address
from repertory.transports.real import RealWorld

from .cl.binding import shared_library
from .cl.library import XmediaCl
from .hardware import XmNpuOptions
from .simulated import SimulatedXmNpuOptions, parameters
from .simulator.board import Board

__all__ = ["ADDRESS", "opened_library"]

ADDRESS: Final = "REPERTORY_XM_NPU"
"""Environment variable with the address of the NPU where a script names none."""

_boards: Final[dict[str, Board]] = {}  # a simulated NPU outlives who uses it
_making: Final = threading.Lock()
os.register_at_fork(after_in_child=_boards.clear)  # its threads and memory are the parent's


def opened_library(source: str | Path | None) -> XmediaCl:
    """Return the library of an address or in a folder; a simulated one of each address, and a new process's.

    Raises:
        ConfigError: the address is neither `xm-npu://` nor `sim+xm-npu://`, its way is not the library's, or
            there is no such library.
    """
    text = os.environ.get(ADDRESS) if source is None else source
    if not isinstance(text, str) or "://" not in text:
        return shared_library(text)
    address = Address.parse(text)
    match address.scheme:
        case "xm-npu":
            options = address.options(XmNpuOptions)
            _check_way(text, options.via)
            return shared_library(options.lib, revision=options.revision)
        case "sim+xm-npu":
            simulated = address.options(SimulatedXmNpuOptions)
            _check_way(text, simulated.via)
            with _making:
                if text not in _boards:
                    _boards[text] = Board(RealWorld(), parameters(simulated))
                return _boards[text].library()
        case scheme:
            raise ConfigError(f"{text}: the library is that of xm-npu:// or sim+xm-npu://, not {scheme}://")


def _check_way(text: str, via: str) -> None:
    if via != "cl":
        raise ConfigError(f"{text}: the eight stages are calls of the library; via={via} has none")
