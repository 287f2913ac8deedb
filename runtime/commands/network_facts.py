"""What is to be said of networks, whatever file they come from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from repertory.models.program import Network
from repertory.models.spec import TensorSpec

__all__ = ["network_facts", "networks_text", "plain_facts", "plain_text"]


def plain_facts(path: str, kind: str, size: int, network: Network) -> dict[str, Any]:
    """Return what is to be said of a file that is nothing but one network."""
    return {"file": path, "format": kind, "bytes": size, "networks": [network_facts(network)]}


def plain_text(facts: dict[str, Any]) -> Iterator[str]:
    """Say it to a person."""
    yield f"{facts['file']}: {facts['format']}, {facts['bytes']} bytes"
    yield from networks_text(facts["networks"])


def network_facts(network: Network) -> dict[str, Any]:
    """Return what is to be said of one network."""
    return {
        "name": network.name,
        "inputs": [_tensor_facts(spec) for spec in network.inputs],
        "outputs": [_tensor_facts(spec) for spec in network.outputs],
    }


def networks_text(networks: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Say it to a person."""
    for network in networks:
        yield f"  network {network['name']}" + (f": {network['error']}" if "error" in network else "")
        for direction in ("inputs", "outputs"):
            for tensor in network.get(direction, ()):
                shape = ", ".join(map(str, tensor["shape"]))
                port = f"  port {tensor['port']}, {tensor['format']}" if "port" in tensor else ""
                yield f"    {direction[:-1]:6} {tensor['name']}: {tensor['dtype']}[{shape}]{port}"


def _tensor_facts(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "shape": list(spec.shape), "dtype": str(spec.dtype), "layout": spec.layout}
