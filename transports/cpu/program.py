"""How the host reads a model: an ONNX file as it is."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import PurePath

from repertory.models.errors import ArtifactError, UnknownModel
from repertory.models.onnx_model import read_specs
from repertory.models.program import Artifact, Program

__all__ = ["graph", "prepare_onnx"]


def prepare_onnx(artifact: Artifact) -> Program:
    """Return the graph as a program; its image is the file's content.

    Raises:
        ArtifactError: it is no ONNX file, or has ports that no array fits.
        UnknownModel: another network is asked for than the file's only one.
    """
    network = read_specs(artifact.data, PurePath(artifact.name).stem)
    if artifact.network not in (None, network.name):
        raise UnknownModel(f"{artifact.name} holds {network.name!r}, not {artifact.network!r}")
    key = blake2b(artifact.data, digest_size=16).hexdigest()
    return Program(key, network.name, (network,), len(artifact.data), scratch=0, image=artifact.data)


def graph(program: Program) -> bytes:
    """Return the file's content.

    Raises:
        ArtifactError: the program was prepared by a device of another family.
    """
    if not isinstance(program.image, bytes):
        raise ArtifactError(f"{program.name} was prepared for another family than cpu")
    return program.image
