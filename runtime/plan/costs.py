"""What a load takes of its devices at the least, as far as their addresses tell."""

from __future__ import annotations

from typing import NamedTuple, final

from repertory.transports.address import Address
from repertory.transports.simulated import SimulatedOptions

from .trace import ModelLoad, Trace

__all__ = ["Costs", "Stream", "least_costs"]


@final
class Costs(NamedTuple):
    """Device time, in seconds, by the model's index.

    Attributes:
        service: of one request.
        swap: to make the model resident.
        exclusive: whether a device holds one model at a time, so that a model that waits for its next
            request keeps the others from the device.
    """

    service: tuple[float, ...]
    swap: tuple[float, ...]
    exclusive: bool


@final
class Stream(NamedTuple):
    """The requests of one model, all in seconds.

    Attributes:
        times: when they come, in order.
        deadline: within which each is to be answered.
        service: device time of each.
        swap: device time to make the model resident.
    """

    times: list[float]
    deadline: float
    service: float
    swap: float


def least_costs(trace: Trace) -> Costs | None:
    """Return the costs on the fastest group that may serve a model.

    None where they are not known beforehand: a group is no generic `sim://` device, or a model is a file.

    Raises:
        ConfigError: an address is wrong.
    """
    addresses = [Address.parse(group.address) for group in trace.groups]
    if any(address.scheme != "sim" for address in addresses) or any(model.path for model in trace.models):
        return None
    options = [address.options(SimulatedOptions) for address in addresses]
    exclusive = all(each.residents == 1 for each in options)
    return Costs(
        service=tuple(model.service for model in trace.models),
        swap=tuple(_swap(model, options) if exclusive else 0.0 for model in trace.models),
        exclusive=exclusive,
    )


def _swap(model: ModelLoad, options: list[SimulatedOptions]) -> float:
    """Return a model's swap time, on the fastest of its groups; what it says itself counts if it is less."""
    told = [each.swap_ms / 1000 for each in options]
    fastest = min(told if model.groups is None else [told[index] for index in model.groups])
    return fastest if model.swap is None else min(model.swap, fastest)
