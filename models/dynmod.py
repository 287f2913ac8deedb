"""Dynamic modules for a C7x DSP (`lib0.out`): what can be known of one before a DSP loads it.

The checks are those of the loader in the firmware, as its source has them, and a few that a run needs. None
was compared with a file from the vendor's compiler by us; the number of the machine is the least sure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, final

from . import twin as twins
from .dynmod_io import DynmodIo
from .elf_header import ElfHeader
from .elf_reader import ElfLibrary, read_library
from .errors import ArtifactError
from .model_file import MAX_MODULE
from .program import Artifact, Network
from .sidecar import read_sidecar
from .twin import Twin, TwinNetwork

__all__ = [
    "COMMENT_SECTION",
    "ENTRY",
    "IMPORTS_SECTION",
    "IO_SECTION",
    "IO_SYMBOL",
    "MACHINE",
    "MAX_SIZE",
    "OS_ABI",
    "PACKED_BY",
    "SHARED",
    "TWIN_SECTION",
    "WEIGHTS",
    "Dynmod",
]

MACHINE: Final = 145
"""e_machine of a C7x."""
OS_ABI: Final = 64
"""EI_OSABI of a C7x without an operating system."""
SHARED: Final = 3
"""e_type of a shared library."""
MAX_SIZE: Final = MAX_MODULE
"""Bytes of a module."""
ENTRY: Final = "cg_main_dsp"
"""The function that a run calls."""
IMPORTS_SECTION: Final = ".dsp_syms_out"
"""How the section begins that names what the firmware offers."""
IO_SYMBOL: Final = "_binary_tvm_dsp_io_meta_start"
"""Where counts and bytes of the tensors lie, in a module for wire version 3."""
WEIGHTS: Final = "_binary_weights_bin_"
"""How `start`, `end` and `size` of embedded weights begin."""
TWIN_SECTION: Final = ".repertory_twin"
"""Holds what a simulated DSP computes; `models/twin.py` reads it."""
IO_SECTION: Final = ".repertory_io"
"""Holds a sidecar."""
COMMENT_SECTION: Final = ".comment"
"""Where compilers leave their names."""
PACKED_BY: Final = b"repertory-pack 1"
"""What this package leaves there in a file without code for a DSP."""

_SIZE_BYTES = 4


@final
@dataclass(frozen=True, slots=True)
class Dynmod:
    """A module; one that exists passed every check.

    Attributes:
        size: bytes of the file.
        machine: e_machine.
        soname: its name to the loader.
        imports: names that the firmware must offer.
        weights: bytes of embedded weights, or None where the file has none or does not tell.
        io: what it tells of its tensors, or None (a module for wire version 2 tells nothing).
        network: its tensors, if a sidecar is embedded, which only this package does.
        twin: what a simulated DSP computes, or None; of one network, with the name of `network`.
        packed: whether this package wrote the whole file, which holds no code.
    """

    size: int
    machine: int
    soname: str
    imports: tuple[str, ...]
    weights: int | None
    io: DynmodIo | None
    network: Network | None
    twin: Twin | None = field(default=None, repr=False)
    packed: bool = False

    @classmethod
    def read(cls, data: bytes, *, any_machine: bool = False) -> Dynmod:
        """Read a file's content, in time and memory bounded by a small multiple of its size.

        Args:
            data: the whole file.
            any_machine: let e_machine be whatever it is.

        Raises:
            ArtifactError: it is no module, or no DSP could load or run it.
            ConfigError: pyelftools is not installed.
        """
        if len(data) > MAX_SIZE:
            raise ArtifactError(f"module: {len(data)} bytes, a DSP takes {MAX_SIZE}")
        _check_target(ElfHeader.read(data), any_machine=any_machine)
        library = read_library(data)
        _check_contents(library)
        module = cls(
            len(data),
            library.header.machine,
            library.soname,
            library.imports,
            _weights(library, data),
            _io(library, data),
            _network(library, data),
            _twin(library, data),
            _section(library, data, COMMENT_SECTION).startswith(PACKED_BY),
        )
        module._check()
        return module

    @property
    def is_twin(self) -> bool:
        """Whether the file was packed for simulated DSPs: no hardware can run it."""
        return self.packed

    def described(self, artifact: Artifact) -> Network | None:
        """Return the module's tensors: those of the artifact's sidecar, else those in the file, if any.

        Raises:
            ArtifactError: the sidecar is malformed or contradicts the module; names where it came from.
        """
        if artifact.sidecar is None:
            return self.network
        try:
            network = read_sidecar(artifact.sidecar)
            if self.io is not None:
                self.io.check(network)
        except ArtifactError as error:
            raise ArtifactError(f"{artifact.sidecar_name}: {error}") from error
        return network

    def _check(self) -> None:
        if self.io is not None and self.network is not None:
            self.io.check(self.network)
        if self.packed and self.twin is None:
            raise ArtifactError("module: it was packed for a simulator and its twin is missing")
        if self.twin is not None:
            _check_twin(self.twin.networks, self.network)


def _check_target(header: ElfHeader, *, any_machine: bool) -> None:
    if header.machine != MACHINE and not any_machine:
        raise ArtifactError(
            f"module: it is for machine {header.machine}, a C7x is {MACHINE}; if your compiler writes another"
            " number for a C7x, allow it with any_machine (?any_machine=true in the device's address)",
            offset=18,
        )
    if header.os_abi != OS_ABI:
        raise ArtifactError(f"module: its OS/ABI is {header.os_abi}, {OS_ABI} is wanted", offset=7)
    if header.type != SHARED:
        raise ArtifactError(
            f"module: it is of ELF type {header.type}, {SHARED} (a shared library) is wanted", offset=16
        )


def _check_contents(library: ElfLibrary) -> None:
    if not any(name.startswith(IMPORTS_SECTION) for name in library.sections):
        raise ArtifactError(f"module: section {IMPORTS_SECTION} is missing, by which the firmware links it")
    if ENTRY in library.imports:
        raise ArtifactError(f"module: {ENTRY} is not defined in it: nothing could be called")
    if ENTRY not in library.symbols:
        raise ArtifactError(f"module: it has no dynamic symbol {ENTRY}: nothing could be called")


def _weights(library: ElfLibrary, data: bytes) -> int | None:
    """Read the size that is stored, else measure; for people, so that a strange file is no error."""
    start, end, size = (library.symbols.get(f"{WEIGHTS}{part}") for part in ("start", "end", "size"))
    if size is not None and (offset := library.offset(size.value, _SIZE_BYTES)) is not None:
        return int.from_bytes(data[offset : offset + _SIZE_BYTES], "little")
    if start is not None and end is not None and start.value <= end.value:
        return end.value - start.value
    return None


def _io(library: ElfLibrary, data: bytes) -> DynmodIo | None:
    symbol = library.symbols.get(IO_SYMBOL)
    if symbol is None:
        return None
    offset = library.offset(symbol.value, DynmodIo.SIZE)
    if offset is None:
        raise ArtifactError(f"module: {IO_SYMBOL} does not lie within what is loaded")
    return DynmodIo.read(data[offset : offset + DynmodIo.SIZE])


def _network(library: ElfLibrary, data: bytes) -> Network | None:
    return read_sidecar(_section(library, data, IO_SECTION)) if IO_SECTION in library.sections else None


def _twin(library: ElfLibrary, data: bytes) -> Twin | None:
    return twins.decode(_section(library, data, TWIN_SECTION)) if TWIN_SECTION in library.sections else None


def _section(library: ElfLibrary, data: bytes, name: str) -> bytes:
    offset, size = library.sections.get(name, (0, 0))
    return data[offset : offset + size]


def _check_twin(held: Sequence[TwinNetwork], network: Network | None) -> None:
    if len(held) != 1 or network is None:
        raise ArtifactError("module: a twin is of one network, which an embedded sidecar describes")
    if held[0].name != network.name:
        raise ArtifactError(f"module: its twin is for {held[0].name!r}, it holds {network.name!r}")
    if (len(held[0].inputs), len(held[0].outputs)) != (len(network.inputs), len(network.outputs)):
        raise ArtifactError(f"module: the twin of {network.name!r} has other tensors than the network")
