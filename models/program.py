"""The units of a model file: what is resident (program) and what is called (network)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

from .elf_header import is_elf
from .errors import ArtifactError
from .spec import TensorSpec

__all__ = ["Artifact", "Network", "Program"]


@final
@dataclass(frozen=True, slots=True)
class Network:
    """One callable: the ports that the caller sees."""

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


@final
@dataclass(frozen=True, slots=True)
class Program:
    """The unit of residency: what one bind makes resident, as one device prepared it.

    Two programs with the same `key` are the same thing on the device: no swap lies between them.
    Networks that a device can only swap between (an MX3 file with several configurations) are
    programs of their own; networks that are resident together share one.

    Attributes:
        key: identity, stable over processes: a digest of the file and of the unit chosen in it.
        name: for people.
        networks: the callables, none of which needs a swap while the program is resident.
        footprint: bytes on the device while resident.
        scratch: bytes that programs of the device share: the maximum counts, not the sum.
        image: the device's own prepared form, opaque to everybody else.
    """

    key: str
    name: str
    networks: tuple[Network, ...]
    footprint: int
    scratch: int
    image: object


@final
@dataclass(frozen=True, slots=True)
class Artifact:
    """A model file as the caller gave it.

    Attributes:
        name: for messages, and of what has no name of its own: the file's, or what the caller calls bytes.
        data: the whole content.
        network: which network is meant where the file holds several, or None.
        twin: ONNX bytes for a simulated device whose file carries no twin, or None.
        sidecar: JSON that tells the tensors of a file which does not, or None; see `models/sidecar.py`.
    """

    name: str
    data: bytes
    network: str | None = None
    twin: bytes | None = None
    sidecar: bytes | None = None

    @classmethod
    def read(
        cls,
        source: str | Path | bytes,
        *,
        name: str | None = None,
        network: str | None = None,
        twin: str | Path | bytes | None = None,
        sidecar: str | Path | bytes | None = None,
    ) -> Artifact:
        """Read a path, or take bytes as they are, which `name` names.

        Without `sidecar`, that of an ELF file at `PATH` is the file `PATH.json`, if there is one.

        Raises:
            ArtifactError: the path cannot be read; the message holds the reason.
        """
        called = (name or "<bytes>") if isinstance(source, bytes) else Path(source).name
        data = _content(source)
        if sidecar is None and not isinstance(source, bytes) and is_elf(data):
            sidecar = _beside(Path(source))
        given = (None if part is None else _content(part) for part in (twin, sidecar))
        return cls(called, data, network, *given)


def _beside(path: Path) -> Path | None:
    sidecar = path.with_name(f"{path.name}.json")
    return sidecar if sidecar.exists() else None


def _content(source: str | Path | bytes) -> bytes:
    if isinstance(source, bytes):
        return source
    try:
        return Path(source).read_bytes()
    except OSError as error:
        raise ArtifactError(f"{source}: {error.strerror or error}") from error
