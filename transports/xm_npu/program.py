"""How an NPU reads a model: an `.xmm` file, checked before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from repertory.models.errors import ArtifactError
from repertory.models.program import Network, Program
from repertory.models.xmm_tensor import XmmTensor

__all__ = ["Code", "Loadable", "loadable"]


@final
@dataclass(frozen=True, slots=True)
class Code:
    """One program of a file: its instructions.

    Attributes:
        offset: in the file.
        size: bytes.
    """

    offset: int
    size: int


@final
@dataclass(frozen=True, slots=True)
class Loadable:
    """The image of a program: what to load, and what it takes and gives.

    Attributes:
        data: the file's content.
        name: for messages, and of the network.
        codes: the file's programs, in the order in which a run takes them.
        params: offset and size of the parameters in the file.
        work: bytes of workspace that querysize tells.
        inputs: how the inputs lie in memory, in the order of the network's.
        outputs: likewise.
        reuse: 0 where inputs and outputs lie apart from the workspace; 1, 2, 3 where the inputs, the outputs or
            both lie in it.
        batch: items of a dynamic batch; 1 without one. The network's first extent is multiplied by it.
        native: whether outputs are given as they are stored; else they are float32.
        network: what the callers see.
    """

    data: bytes
    name: str
    codes: tuple[Code, ...]
    params: tuple[int, int]
    work: int
    inputs: tuple[XmmTensor, ...]
    outputs: tuple[XmmTensor, ...]
    reuse: int
    batch: int
    native: bool
    network: Network


def loadable(program: Program) -> Loadable:
    """Return a program's image.

    Raises:
        ArtifactError: it was prepared by a device of another family.
    """
    if not isinstance(program.image, Loadable):
        raise ArtifactError(f"{program.name} was prepared for another family than xm-npu")
    return program.image
