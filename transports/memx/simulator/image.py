"""What a download brings to simulated chips: a DFP file, read once for all that load it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

from repertory.models.dfp import Dfp, DfpNetwork, Port
from repertory.models.errors import ArtifactError
from repertory.models.formats import Shape
from repertory.models.port import RangeConvert
from repertory.transports.memx.constants import Status

from .answers import Answer, hash_answer, hash_answers, twin_answers
from .parameters import SimulatedMx3
from .rules import StatusError

__all__ = ["ChipNetwork", "ChipPort", "Image", "Images"]

_VERSION: Final = 6
_LEGACY_VERSIONS: Final = (4, 5)


@final
@dataclass(frozen=True, slots=True)
class ChipPort:
    """One flow.

    Attributes:
        number: the flow's id.
        size: bytes of a frame, padding and dropped channels included.
        shape: height, width, z, channels, as the size calls tell them: without dropped channels.
        format: how numbers lie in a frame.
        convert: shift and scale of an input, where the host is to apply them.
        dropped: channels of an output's frames that no caller is to see.
    """

    number: int
    size: int
    shape: Shape
    format: int
    convert: RangeConvert | None
    dropped: tuple[int, ...]


@final
@dataclass(frozen=True, slots=True)
class ChipNetwork:
    """One network on the chips; times in seconds."""

    name: str
    inputs: tuple[ChipPort, ...]
    outputs: tuple[ChipPort, ...]
    latency: float
    interval: float
    answer: Answer

    def spoiled(self) -> ChipNetwork:
        """Return the network as chips with wrong weights compute it."""
        sizes = {port.number: port.size for port in self.outputs}

        def answer(inputs: Sequence[bytes]) -> dict[int, bytes]:
            frames = hash_answer(f"{self.name} with wrong weights", inputs, list(sizes.values()))
            return dict(zip(sizes, frames, strict=True))

        return replace(self, answer=answer)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Image:
    """A file; the same object for the same content.

    Attributes:
        chips: how many it is made for.
        weights: bytes that go to the chips: its compiled part, or all of it where it has none.
        models: the networks that are resident together, by the number to download them with.
    """

    chips: int
    weights: int
    models: Mapping[int, tuple[ChipNetwork, ...]]


@final
class Images:
    """The files that were read so far."""

    def __init__(self, mx3: SimulatedMx3) -> None:
        self._mx3 = mx3
        self._images: dict[bytes, Image] = {}

    def read(self, content: bytes) -> Image:
        """Read a file; from any thread.

        Raises:
            StatusError: with the status that libmemx gives for such a file.
        """
        image = self._images.get(content)
        return image or self._images.setdefault(content, self._read(content))

    def _read(self, content: bytes) -> Image:
        _check_version(content)
        try:
            dfp = Dfp.read(content)
            networks = [(network.configuration, self._network(network)) for network in dfp.networks]
        except ArtifactError as error:
            raise StatusError(Status.DFP_BAD_CONTENT) from error
        models = {
            index: tuple(network for configuration, network in networks if configuration == index)
            for index, _ in networks
        }
        return Image(dfp.chips, dfp.hw_size or len(content), models)

    def _network(self, network: DfpNetwork) -> ChipNetwork:
        told = network.twin
        latency, interval = self._mx3.pace(told and told.latency, told and told.interval)
        answers = hash_answers if self._mx3.answers == "hash" else twin_answers
        inputs, outputs = (tuple(map(_port, ports)) for ports in (network.inputs, network.outputs))
        return ChipNetwork(network.name, inputs, outputs, latency, interval, answers(network))


def _port(port: Port) -> ChipPort:
    dropped = port.hpoc.channels if port.hpoc else ()
    return ChipPort(port.number, port.nbytes, port.shape, port.format, port.range_convert, dropped)


def _check_version(content: bytes) -> None:
    version = int.from_bytes(content[:8], "little")
    if version in _LEGACY_VERSIONS:
        raise StatusError(Status.DFP_READ_ERROR)
    if version != _VERSION:
        raise StatusError(Status.DFP_VERSION_REFUSED)
