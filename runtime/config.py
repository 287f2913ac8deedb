"""Configuration: a TOML file, checked before anything is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, final

import msgspec

from repertory.actors.context import Limits, Overflow
from repertory.models.errors import ConfigError

from .repertoire import LoadOptions, Outputs

__all__ = ["Config", "GroupConfig", "ModelConfig", "read_config"]

Positive = Annotated[int, msgspec.Meta(ge=1)]


@final
class GroupConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[[group]]`: one device group, by its address."""

    address: str


@final
class ModelConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[[model]]`: one model that is loaded when the runtime opens.

    Attributes:
        path: the model file, relative to the configuration's folder.
        name: its name in the runtime; the network's own without one.
        network: which network, where the file holds several.
        twin: an ONNX file for simulated devices, where the model file carries no twin.
        sidecar: a JSON file that tells the tensors of a module which does not; `<path>.json` without it.
        outputs: float32, or native: quantised outputs as the device has them.
        groups: addresses of the groups that may serve it; every group that takes it without them.
        queue: frames that may wait.
        queue_bytes: bytes of their inputs.
        overflow: refuse, wait or drop_oldest.
        timeout: seconds, default of `infer`; none without it.
        priority: default of `infer`.
        warm: make it resident and run it once before it is in service.
        pin: make it resident before it is in service, and keep it so.
    """

    path: str
    name: str | None = None
    network: str | None = None
    twin: str | None = None
    sidecar: str | None = None
    outputs: Outputs = "float32"
    groups: list[str] | None = None
    queue: Positive = 1024
    queue_bytes: Positive = 256 * 2**20
    overflow: Overflow = Overflow.REFUSE
    timeout: Annotated[float, msgspec.Meta(gt=0)] | None = None
    priority: Annotated[int, msgspec.Meta(ge=-128, le=127)] = 0
    warm: bool = False
    pin: bool = False

    @property
    def options(self) -> LoadOptions:
        """The arguments for loading it."""
        return LoadOptions(
            name=self.name,
            network=self.network,
            twin=self.twin,
            sidecar=self.sidecar,
            outputs=self.outputs,
            groups=self.groups,
            limits=Limits(self.queue, self.queue_bytes, self.overflow),
            timeout=self.timeout,
            priority=self.priority,
            warm=self.warm,
            pin=self.pin,
        )


@final
class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    group: list[GroupConfig]
    model: list[ModelConfig] = []


def read_config(path: Path) -> Config:
    """Read and check a TOML file; model paths come back resolved against its folder.

    Raises:
        ConfigError: names the file and the key that is wrong.
    """
    try:
        config = msgspec.toml.decode(path.read_bytes(), type=Config)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    if not config.group:
        raise ConfigError(f"{path}: there is no [[group]]: a runtime needs at least one device")
    return Config(config.group, [_resolved(model, path.parent) for model in config.model])


def _resolved(model: ModelConfig, folder: Path) -> ModelConfig:
    given = {"path": model.path, "twin": model.twin, "sidecar": model.sidecar}
    files = {key: str(folder / file) for key, file in given.items() if file is not None}
    return msgspec.structs.replace(model, **files)
