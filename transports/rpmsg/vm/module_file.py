"""The module as it lies on disk: read at the first use, checked, and measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, final

from repertory.models.dynmod import Dynmod
from repertory.models.dynmod_io import room
from repertory.models.errors import ArtifactError
from repertory.models.program import Network
from repertory.models.sidecar import read_sidecar
from repertory.transports.rpmsg.memory import PAGE, aligned
from repertory.transports.rpmsg.tensors import INLINE_OUTPUTS, table_size
from repertory.transports.rpmsg.wire.messages import MAX_INPUTS
from repertory.transports.rpmsg.workspace import RESULT_SIZE, STAGING_SIZE, Need

from .errors import ModuleNotFound
from .staging import TABLE

__all__ = ["INPUT_BYTES", "INPUT_BYTES_3", "OUTPUT_BYTES_3", "ModuleFile"]

INPUT_BYTES: Final = 16 << 20
"""Bytes for inputs where wire version 2 leaves them open. Each run syncs all of them."""

INPUT_BYTES_3: Final = 14 << 20
"""Likewise for wire version 3, whose inputs and results share 32 MiB."""

OUTPUT_BYTES_3: Final = 14 << 20
"""Bytes for results of wire version 3 where nothing tells more. Version 2 has all that there is."""


@final
@dataclass(frozen=True, slots=True)
class ModuleFile:
    """A module that a DSP of the kind asked for could load.

    Attributes:
        data: the content.
        inputs: bytes of one run's inputs, or None where nothing tells.
        outputs: bytes of one run's outputs with the table of many, likewise.
        network: the module's tensors, likewise.
    """

    data: bytes
    inputs: int | None
    outputs: int | None
    network: Network | None = None

    @classmethod
    def read(cls, path: Path, sidecar: Path | None, *, simulated: bool, any_machine: bool = False) -> Self:
        """Read a file, and the sidecar that is named or lies beside it as `PATH.json`.

        Raises:
            ModuleNotFound: there is no such file.
            ArtifactError: it cannot be read, or no DSP of this kind could run it.
            ConfigError: pyelftools is not installed.
        """
        data = _content(path)
        module = Dynmod.read(data, any_machine=any_machine)
        network = _network(path, sidecar) or module.network
        if module.is_twin and not simulated:
            raise ArtifactError("it is a simulation twin, which holds no code; only sim+c7x:// runs it")
        if simulated and module.twin is None and network is None:
            raise ArtifactError("it carries no twin, which is what a simulated DSP runs")
        if network is not None:
            many = table_size(len(network.outputs), INLINE_OUTPUTS)
            return cls(data, room(network.inputs), room(network.outputs) + many, network)
        if module.io is not None:
            many = table_size(module.io.outputs, INLINE_OUTPUTS)
            outputs = module.io.output_bytes and module.io.output_bytes + many
            return cls(data, module.io.input_bytes or None, outputs or None)
        return cls(data, None, None)

    def need(self, *, shared: bool, inputs: int | None, outputs: int | None) -> tuple[Need, int]:
        """Return what to ask of the workspace, and how much of it is for inputs.

        Args:
            shared: whether inputs and results share their memory (wire version 3).
            inputs: bytes for inputs that the caller wants, or None.
            outputs: likewise.
        """
        results = outputs or self.outputs or (OUTPUT_BYTES_3 if shared else RESULT_SIZE)
        if shared:
            most = RESULT_SIZE - aligned(results, PAGE) - aligned(TABLE, PAGE)
        else:
            most = STAGING_SIZE - aligned(len(self.data), PAGE) - aligned(TABLE, PAGE)
        capacity = inputs or max(min(self._roomy(shared=shared), most), self.inputs or 1)
        return Need(len(self.data), aligned(capacity) + TABLE, results), capacity

    def _roomy(self, *, shared: bool) -> int:
        """Room for one run and 128 staged inputs of it, up to the default; for two runs in any case."""
        default = INPUT_BYTES_3 if shared else INPUT_BYTES
        if self.inputs is None:
            return default
        return max(min((MAX_INPUTS + 1) * self.inputs, default), 2 * self.inputs)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise ModuleNotFound(error.errno, "no such module", str(path)) from error
    except OSError as error:
        raise ArtifactError(f"it cannot be read: {error.strerror}") from error


def _network(path: Path, sidecar: Path | None) -> Network | None:
    beside = path.with_name(f"{path.name}.json")
    if sidecar is None and not beside.exists():
        return None
    try:
        return read_sidecar((sidecar or beside).read_bytes())
    except OSError as error:
        raise ArtifactError(f"its sidecar {sidecar or beside} cannot be read: {error.strerror}") from error
