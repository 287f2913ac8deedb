"""Configuration: a TOML file, checked before anything is opened."""

from __future__ import annotations

from pathlib import Path
from typing import final

import msgspec

from repertory.actors.limits import MAX_WAIT, QUEUE, QUEUE_BYTES, Limits, Overflow, whole
from repertory.models.errors import ConfigError

from .policies.named import policy_named
from .repertoire import LoadOptions, Outputs
from .toml_table import decoded

__all__ = ["Config", "GroupConfig", "ModelConfig", "read_config"]


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
        queue: frames that may wait; this and what follows up to `max_wait` as in `Limits`.
        queue_bytes: bytes of their inputs.
        overflow: refuse, wait or drop_oldest.
        max_in_flight: frames that may be started and not completed; as many as the devices take without it.
        weight: its share among models of one priority.
        priority: default of `infer`.
        timeout: seconds, default of `infer`; none without it.
        max_wait: seconds within which it is to get a turn.
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
    queue: int = QUEUE
    queue_bytes: int = QUEUE_BYTES
    overflow: Overflow = Overflow.REFUSE
    max_in_flight: int | None = None
    weight: float = 1.0
    priority: int = 0
    timeout: float | None = None
    max_wait: float = MAX_WAIT
    warm: bool = False
    pin: bool = False

    @property
    def limits(self) -> Limits:
        """What it may take, and what it is due.

        Raises:
            ConfigError: names what is out of its range.
        """
        return Limits(
            queue=self.queue,
            queue_bytes=self.queue_bytes,
            overflow=self.overflow,
            max_in_flight=self.max_in_flight,
            weight=self.weight,
            priority=self.priority,
            timeout=self.timeout,
            max_wait=self.max_wait,
        )

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
            limits=self.limits,
            warm=self.warm,
            pin=self.pin,
        )


@final
class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file.

    Attributes:
        group: device groups.
        model: models that are loaded when the runtime opens, in this order.
        policy: name of the policy that decides who gets a group next.
        queue: frames that may wait in all models together.
        queue_bytes: bytes of their inputs.
    """

    group: list[GroupConfig]
    model: list[ModelConfig] = []
    policy: str | None = None
    queue: int | None = None
    queue_bytes: int | None = None


def read_config(path: Path) -> Config:
    """Read and check a TOML file; model paths come back resolved against its folder.

    Raises:
        ConfigError: names the file, the table and the key that is wrong, what came, and what is wanted.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    try:
        config = decoded(data, Config)
        _check(config)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    return msgspec.structs.replace(config, model=[_resolved(model, path.parent) for model in config.model])


def _check(config: Config) -> None:
    """Check what the types do not tell."""
    if not config.group:
        raise ConfigError("there is no [[group]]: a runtime needs at least one device")
    for name, value in (("queue", config.queue), ("queue_bytes", config.queue_bytes)):
        if value is not None:
            whole(name, value)
    if config.policy is not None:
        policy_named(config.policy)
    for number, model in enumerate(config.model, 1):
        try:
            _ = model.options
        except ConfigError as error:
            raise ConfigError(f"model {number} ({model.name or model.path}): {error}") from error


def _resolved(model: ModelConfig, folder: Path) -> ModelConfig:
    given = {"path": model.path, "twin": model.twin, "sidecar": model.sidecar}
    files = {key: str(folder / file) for key, file in given.items() if file is not None}
    return msgspec.structs.replace(model, **files)
