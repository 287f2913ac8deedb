"""What a user opens: a runtime on a file's devices, or on those of a list."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from repertory.actors.policy import Policy
from repertory.models.errors import ConfigError
from repertory.transports.real import RealWorld
from repertory.transports.world import World

from .arguments import intake_of, policy_of
from .config import read_config
from .fleet import DeviceSource
from .runtime import Runtime

__all__ = ["open_runtime"]


def open_runtime(
    source: str | Path | Sequence[DeviceSource],
    *,
    world: World | None = None,
    policy: Policy | str | None = None,
    queue: int | None = None,
    queue_bytes: int | None = None,
    spans: int = 0,
) -> Runtime:
    """Open device groups and serve models on them; the result is entered with `async with`.

    Args:
        source: a TOML file's path, or addresses of device groups (`["sim+memx://0", "cpu://"]`).
        world: real time without one; a `VirtualWorld` under an event loop on virtual time.
        policy: who gets a group next, as an object or by its name; `swap-aware` without one.
        queue: frames that may wait in all models together; without it only each model's own bound counts.
        queue_bytes: bytes of their inputs, likewise. Where too much waits, a request is refused, waits for a
            place, or takes that of the oldest frames of its own model, as its model's `overflow` says.
        spans: how many spans a group keeps for `timeline`; 0 keeps none.

    `policy`, `queue` and `queue_bytes` go before those of the file.

    Raises:
        ConfigError: the file, an address or an option is wrong.
        DeviceError: (on entering) a device is not there, or belongs to somebody else.
    """
    if isinstance(source, str) and "://" in source:
        raise ConfigError(
            f"{source!r} is an address, and a list of them is wanted: open_runtime([{source!r}])"
        )
    config = read_config(Path(source)) if isinstance(source, str | Path) else None
    devices = [group.address for group in config.group] if config else source
    if isinstance(devices, str | Path) or not devices:
        raise ConfigError("a runtime needs at least one device address")
    for device in devices:
        if not isinstance(device, str) and not callable(device):
            raise ConfigError(f"{device!r} is neither an address nor a function that makes a device")
    if config is not None:
        policy = config.policy if policy is None else policy
        queue = config.queue if queue is None else queue
        queue_bytes = config.queue_bytes if queue_bytes is None else queue_bytes
    return Runtime(
        devices,
        config=config,
        world=world or RealWorld(),
        policy=policy_of(policy),
        intake=intake_of(queue, queue_bytes),
        spans=spans,
    )
