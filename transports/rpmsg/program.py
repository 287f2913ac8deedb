"""How a C7x DSP reads a model: a dynamic module (`lib0.out`), checked before anything is sent."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import final

from repertory.models.dynmod import Dynmod
from repertory.models.dynmod_io import DynmodIo, room
from repertory.models.errors import ArtifactError, UnknownModel
from repertory.models.pack_c7x import attach_twin_c7x
from repertory.models.program import Artifact, Network, Program
from repertory.models.sidecar import fill_in, write_sidecar

__all__ = ["Loadable", "loadable", "prepare_dynmod"]


@final
@dataclass(frozen=True, slots=True)
class Loadable:
    """The image of a program: what to load, and what it takes and gives.

    Attributes:
        file: digest of the content.
        data: the content.
        io: what the module tells of its tensors, or None.
        network: its tensors, with fixed extents and dtypes that the wire has.
    """

    file: str
    data: bytes
    io: DynmodIo | None
    network: Network


def loadable(program: Program) -> Loadable:
    """Return a program's image.

    Raises:
        ArtifactError: it was prepared by a device of another family.
    """
    if not isinstance(program.image, Loadable):
        raise ArtifactError(f"{program.name} was prepared for another family than c7x")
    return program.image


def prepare_dynmod(artifact: Artifact, *, simulated: bool, any_machine: bool = False) -> Program:
    """Read a module, which holds one network.

    Its tensors are those of the artifact's sidecar, else of one embedded in the file; for a simulated DSP
    that gets its twin from the artifact, else those of the twin.

    Args:
        artifact: the module, and what came with it.
        simulated: whether for a simulated DSP, which runs the artifact's twin, else the one in the file.
        any_machine: let the number of the machine in the file be whatever it is.

    Raises:
        ArtifactError: no DSP could run it; it is a twin that came to real hardware, or has no twin and came
            to a simulator; nothing describes its tensors, or what does contradicts it.
        UnknownModel: the artifact names another network than the file holds.
        ConfigError: pyelftools, or onnx for a twin, is not installed.
    """
    module = _read(artifact.name, artifact.data, any_machine=any_machine)
    network, data = _described(artifact, module), artifact.data
    if not simulated:
        _check_compiled(artifact, module)
    elif (changed := _with_twin(artifact, module, any_machine=any_machine)) is not None:
        data = changed
        network = _read(artifact.name, data, any_machine=any_machine).network
    if network is None:
        raise ArtifactError(_undescribed(artifact, module.io))
    if artifact.network not in (None, network.name):
        raise UnknownModel(f"{artifact.name} holds {network.name!r}, not {artifact.network!r}")
    file = _digest(data)
    return Program(
        key=_digest(file.encode(), write_sidecar(network)),
        name=network.name,
        networks=(network,),
        footprint=len(data),
        scratch=room(network.inputs) + room(network.outputs),
        image=Loadable(file, data, module.io, network),
    )


def _read(name: str, data: bytes, *, any_machine: bool) -> Dynmod:
    with _named(name):
        return Dynmod.read(data, any_machine=any_machine)


def _described(artifact: Artifact, module: Dynmod) -> Network | None:
    with _named(artifact.name):
        return module.described(artifact)


@contextmanager
def _named(name: str) -> Generator[None]:
    """Say which file is at fault."""
    try:
        yield
    except ArtifactError as error:
        raise ArtifactError(f"{name}: {error}") from error


def _check_compiled(artifact: Artifact, module: Dynmod) -> None:
    if module.is_twin:
        raise ArtifactError(
            f"{artifact.name} is a simulation twin: it holds no code for a DSP; only sim+c7x:// runs it"
        )


def _with_twin(artifact: Artifact, module: Dynmod, *, any_machine: bool) -> bytes | None:
    """Put into the module what the artifact brings along; None where it is right as it is."""
    onnx, latency = artifact.twin, None
    if module.twin is not None and onnx is None:
        if artifact.sidecar is None:
            return None
        (held,) = module.twin.networks
        onnx, latency = held.onnx, held.latency
    if onnx is None:
        raise ArtifactError(f"{artifact.name} carries no twin: a simulator needs twin= (an ONNX file)")
    with _named(artifact.name):
        return attach_twin_c7x(
            artifact.data,
            onnx,
            sidecar=artifact.sidecar,
            name=Path(artifact.name).stem,
            latency=latency,
            any_machine=any_machine,
        )


def _undescribed(artifact: Artifact, io: DynmodIo | None) -> str:
    counts = (io.inputs, io.outputs) if io else (1, 1)
    example = fill_in(Path(artifact.name).stem or "model", *counts).decode()
    return (
        f"{artifact.name} does not tell its tensors, as compiled modules do not: give sidecar=, or put a file"
        f" {artifact.name}.json beside it, of this form:\n{example}"
    )


def _digest(*parts: bytes) -> str:
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
