"""What is to be said of a DFP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from repertory.models.dfp import Dfp
from repertory.models.errors import ArtifactError

from .network_facts import network_facts, networks_text

__all__ = ["dfp_facts", "dfp_text"]


def dfp_facts(path: str, size: int, dfp: Dfp) -> dict[str, Any]:
    """Return it for a program."""
    networks: list[dict[str, Any]] = []
    for found in dfp.networks:
        try:
            network = found.network
        except ArtifactError as error:
            networks.append({"name": found.name, "configuration": found.configuration, "error": str(error)})
            continue
        ports = {port.layer_name: port for port in (*found.inputs, *found.outputs)}
        facts = network_facts(network)
        for tensor in (*facts["inputs"], *facts["outputs"]):
            port = ports[tensor["name"]]
            tensor |= {
                "port": port.number,
                "format": port.format.name,
                "device_shape": list(port.wire_shape),
                "frame_bytes": port.nbytes,
            }
        networks.append({**facts, "configuration": found.configuration, "twin": found.twin is not None})
    return {
        "file": path,
        "format": "dfp",
        "bytes": size,
        "chips": dfp.chips,
        "generation": dfp.generation,
        "compiler": dfp.compiler_version,
        "compiled_bytes": dfp.hw_size,
        "simulation_twin": dfp.is_twin,
        "networks": networks,
    }


def dfp_text(facts: dict[str, Any]) -> Iterator[str]:
    """Say it to a person."""
    yield f"{facts['file']}: dfp, {facts['bytes']} bytes"
    kind = "simulation twin: no hardware runs it" if facts["simulation_twin"] else "compiled"
    yield f"  {facts['chips']} chips of generation {facts['generation']}; {kind} ({facts['compiler']})"
    yield from networks_text(facts["networks"])
