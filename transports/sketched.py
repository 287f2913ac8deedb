"""How devices that compute nothing read a model: from a sketch of its ports."""

from __future__ import annotations

from hashlib import blake2b

from repertory.models.errors import ArtifactError, UnknownModel
from repertory.models.program import Artifact, Program
from repertory.models.sketch import read_sketch, sketched_footprint

__all__ = ["check_sketched", "prepare_sketch"]


def prepare_sketch(artifact: Artifact) -> Program:
    """Return the sketched model as a program; its image is the frame's service time in seconds, or None.

    Raises:
        ArtifactError: it is no sketch.
        UnknownModel: another network is asked for than the sketch's only one.
    """
    network, service = read_sketch(artifact.data)
    if artifact.network not in (None, network.name):
        raise UnknownModel(f"{artifact.name} holds {network.name!r}, not {artifact.network!r}")
    key = blake2b(artifact.data, digest_size=16).hexdigest()
    return Program(key, network.name, (network,), sketched_footprint(artifact.data), scratch=0, image=service)


def check_sketched(program: Program) -> None:
    """Check that a program was prepared from a sketch.

    Raises:
        ArtifactError: a device of another family prepared it.
    """
    if not isinstance(program.image, float | None):
        raise ArtifactError(f"{program.name} was prepared for another device")
