"""The units of a model file: what is resident (program) and what is called (network)."""

from __future__ import annotations

from dataclasses import dataclass, field
from os import PathLike
from os.path import lexists
from pathlib import Path
from typing import final

from .elf_header import is_elf
from .errors import ArtifactError
from .model_file import MAX_SIDECAR, Source, contents, is_dfp
from .spec import TensorSpec
from .xmm_header import is_xmm

__all__ = ["Artifact", "Network", "Program"]

_GIVEN = "sidecar="  # what a sidecar without a file is called


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
        sidecar_name: where the sidecar came from, for messages: its path, or `sidecar=`.
        native_outputs: whether outputs are wanted as the device stores them, where it stores other numbers
            than callers get.
    """

    name: str
    data: bytes
    network: str | None = None
    twin: bytes | None = None
    sidecar: bytes | None = None
    sidecar_name: str = field(default=_GIVEN, compare=False, kw_only=True)
    native_outputs: bool = field(default=False, kw_only=True)

    @classmethod
    def read(
        cls,
        source: Source,
        *,
        name: str | None = None,
        network: str | None = None,
        twin: Source | None = None,
        sidecar: Source | None = None,
        native_outputs: bool = False,
    ) -> Artifact:
        """Read a path, or take bytes as they are, which `name` names.

        Without `sidecar`, that of an ELF file at `PATH` is the file `PATH.json`, if there is one.

        Raises:
            ArtifactError: a path cannot be read, is of no regular file, or of one that is too large; or the
                twin is no ONNX file but a compiled model. The message holds the reason.
            ConfigError: what came is neither a path nor bytes.
        """
        data = contents(source, "a model")
        path = Path(source) if isinstance(source, str | PathLike) else None
        if sidecar is None and path is not None and is_elf(data):
            sidecar = _beside(path)
        return cls(
            (name or "<bytes>") if path is None else path.name,
            data,
            network,
            None if twin is None else _twin(contents(twin, "twin=")),
            None if sidecar is None else contents(sidecar, _GIVEN, most=MAX_SIDECAR),
            native_outputs=native_outputs,
            sidecar_name=str(sidecar) if isinstance(sidecar, str | PathLike) else _GIVEN,
        )


def _beside(path: Path) -> Path | None:
    sidecar = path.with_name(f"{path.name}.json")
    return sidecar if lexists(sidecar) else None


def _twin(data: bytes) -> bytes:
    """Refuse what is surely no ONNX file but a model for a device."""
    if is_elf(data):
        raise ArtifactError("twin=: an ONNX file is wanted, and this is a module (ELF)")
    if is_dfp(data):
        raise ArtifactError("twin=: an ONNX file is wanted, and this is a DFP")
    if is_xmm(data):
        raise ArtifactError("twin=: an ONNX file is wanted, and this is a model for an NPU (.xmm)")
    return data
