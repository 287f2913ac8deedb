"""Which of the demonstration's networks runs on which device, and the file that it wants there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from repertory.models.errors import ConfigError
from repertory.models.pack import pack_memx
from repertory.models.pack_c7x import pack_c7x
from repertory.models.pack_xm_npu import pack_xm_npu

from .canvas import CANVAS
from .photos import network

__all__ = ["SCHEMES", "model_file", "placed"]

SCHEMES: Final = ("sim+memx", "sim+xm-npu", "sim+c7x", "cpu")
"""Devices that compute the demonstration's networks."""

_PREFERRED: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "pnet": ("sim+memx", "cpu", "sim+xm-npu", "sim+c7x"),
        "rnet": ("sim+xm-npu", "sim+memx", "cpu", "sim+c7x"),
        "onet": ("sim+c7x", "sim+memx", "sim+xm-npu", "cpu"),
    }
)

_PACES: Final = {"pnet": (0.006, 0.003), "rnet": (0.0008, 0.0002), "onet": (0.0015, 0.0005)}
"""Simulated latency and interval in seconds: of the order of such networks on such devices."""


def placed(name: str, devices: Sequence[str]) -> list[str]:
    """Return the devices for a network: all of one family, the one that suits it best.

    Where there is one of each family, the MX3 scans, the NPU refines, and the DSP has the last word, for it
    is asked for least.

    Raises:
        ConfigError: no device computes the networks.
    """
    by_scheme = {
        scheme: [device for device in devices if device.partition("://")[0] == scheme] for scheme in SCHEMES
    }
    for scheme in _PREFERRED[name]:
        if by_scheme[scheme]:
            return by_scheme[scheme]
    raise ConfigError(f"none of {', '.join(devices)} computes the demonstration's networks")


def model_file(name: str, device: str) -> bytes:
    """Return a network as a file for a device: packed, unless the device is the processor."""
    data = network(name)
    latency, interval = _PACES[name]
    shapes = {"input_1": (1, CANVAS[1], CANVAS[0], 3)} if name == "pnet" else {}
    match device.partition("://")[0]:
        case "sim+memx":
            return pack_memx([(name, data)], shapes=shapes, latency=latency, interval=interval)
        case "sim+c7x":
            return pack_c7x(name, data, shapes=shapes, latency=latency)
        case "sim+xm-npu":
            return pack_xm_npu(name, data, shapes=shapes, latency=latency)
        case _:
            return data
