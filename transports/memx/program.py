"""How an MX3 group reads a model: a DFP file, checked in every way before the library sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, final

from repertory.models.dfp import Dfp, DfpNetwork
from repertory.models.errors import ArtifactError, UnknownModel
from repertory.models.formats import convertible
from repertory.models.pack import attach_twin
from repertory.models.port import Port
from repertory.models.program import Artifact, Program

__all__ = ["GENERATION", "Loadable", "Ports", "loadable", "prepare_dfp"]

GENERATION: Final = 4
"""Cascade+, the MX3: the only generation that libmemx still runs."""


@final
@dataclass(frozen=True, slots=True)
class Ports:
    """The flows of one network, in the order of its specs."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


@final
@dataclass(frozen=True, slots=True)
class Loadable:
    """The image of a program: what to download, and how its frames lie on the wire.

    Attributes:
        file: digest of the content; programs of one file share a context.
        data: the content.
        configuration: `model_idx` of the download.
        chips: what the group must be configured to.
        ports: flows by network.
    """

    file: str
    data: bytes
    configuration: int
    chips: int
    ports: Mapping[str, Ports]


def loadable(program: Program) -> Loadable:
    """Return a program's image.

    Raises:
        ArtifactError: it was prepared by a device of another family.
    """
    if not isinstance(program.image, Loadable):
        raise ArtifactError(f"{program.name} was prepared for another family than memx")
    return program.image


def prepare_dfp(artifact: Artifact, *, simulated: bool, chips: int) -> Program:
    """Read a DFP for a group of `chips` chips; 0 while nobody knows how many.

    The program holds the network that the artifact names and those that are resident together with it.

    Raises:
        ArtifactError: it is no DFP, is for other hardware, is a twin that came to real hardware, or has no
            twin and came to a simulator.
        UnknownModel: the file does not hold the network, or holds several configurations and none was named.
    """
    dfp = Dfp.read(artifact.data)
    _check_hardware(artifact, dfp, simulated=simulated, chips=chips)
    data = _with_twin(artifact, dfp) if simulated else artifact.data
    together = _together(artifact, dfp)
    configuration = together[0].configuration
    file = blake2b(data, digest_size=16).hexdigest()
    ports = {network.name: Ports(network.inputs, network.outputs) for network in together}
    image = Loadable(file, data, configuration, dfp.chips, ports)
    name = "+".join(ports)
    networks = tuple(network.network for network in together)
    return Program(f"{file}/{configuration}", name, networks, len(data), scratch=0, image=image)


def _check_hardware(artifact: Artifact, dfp: Dfp, *, simulated: bool, chips: int) -> None:
    if dfp.is_twin and not simulated:
        raise ArtifactError(
            f"{artifact.name} is a simulation twin: it holds no code for the chips; only sim+memx:// runs it"
        )
    if dfp.generation != GENERATION:
        raise ArtifactError(
            f"{artifact.name} is compiled for chip generation {dfp.generation}, an MX3 is {GENERATION}"
        )
    if chips and dfp.chips > chips:
        raise ArtifactError(f"{artifact.name} is compiled for {dfp.chips} chips, this group has {chips}")
    for port in (*dfp.inputs, *dfp.outputs):
        if port.active and not convertible(port.format):
            raise ArtifactError(
                f"{artifact.name}: port {port.number} is {port.format.name}, which is not supported"
            )


def _with_twin(artifact: Artifact, dfp: Dfp) -> bytes:
    if artifact.twin is None:
        if dfp.twin is None:
            raise ArtifactError(f"{artifact.name} carries no twin: a simulator needs twin= (an ONNX file)")
        return artifact.data
    return attach_twin(artifact.data, artifact.twin, network=artifact.network)


def _together(artifact: Artifact, dfp: Dfp) -> list[DfpNetwork]:
    """Return the named network and those that are resident with it."""
    networks = dfp.networks
    wanted = [network for network in networks if artifact.network in (None, network.name)]
    if not wanted:
        raise UnknownModel(f"{artifact.name} holds {list(dfp.models)}, not {artifact.network!r}")
    configurations = {network.configuration for network in wanted}
    if len(configurations) > 1:
        raise UnknownModel(f"{artifact.name} holds {list(dfp.models)}: say which with network=")
    return [network for network in networks if network.configuration in configurations]
