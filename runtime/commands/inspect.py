"""`repertory inspect`: what a model file holds."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

from repertory.models.dfp import Dfp
from repertory.models.errors import ArtifactError
from repertory.models.onnx_model import read_specs
from repertory.models.program import Artifact, Network
from repertory.models.sketch import read_sketch
from repertory.models.spec import TensorSpec

from .command import Command, printed

__all__ = ["Inspect", "dfp_facts", "dfp_text"]


@final
class Inspect(Command):
    """Show what a model file holds: networks, ports, shapes, formats, and what it was made for.

    Reads DFP files of version 6, ONNX files and sketches; nothing is run and no device is touched.
    """

    name = "inspect"
    summary = "show what a model file holds"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", type=Path, help="a .dfp, .onnx or sketch file")
        parser.add_argument("--json", action="store_true", help="print JSON")

    def run(self, options: argparse.Namespace) -> None:
        data = Artifact.read(options.file).data
        try:
            facts = _facts(options.file, data)
        except ArtifactError as error:
            raise ArtifactError(f"{options.file}: {error}") from error
        printed(facts, dfp_text(facts), json=options.json)


def _facts(path: Path, data: bytes) -> dict[str, Any]:
    if path.suffix == ".onnx":
        return _plain_facts(str(path), "onnx", len(data), read_specs(data, path.stem))
    if data[:1] == b"{":
        return _plain_facts(str(path), "sketch", len(data), read_sketch(data)[0])
    return dfp_facts(str(path), len(data), Dfp.read(data))


def dfp_facts(path: str, size: int, dfp: Dfp) -> dict[str, Any]:
    """Return what is to be said of a DFP."""
    networks: list[dict[str, Any]] = []
    for found in dfp.networks:
        try:
            network = found.network
        except ArtifactError as error:
            networks.append({"name": found.name, "configuration": found.configuration, "error": str(error)})
            continue
        ports = {port.layer_name: port for port in (*found.inputs, *found.outputs)}
        facts = _network_facts(network)
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
    yield f"{facts['file']}: {facts['format']}, {facts['bytes']} bytes"
    if facts["format"] == "dfp":
        kind = "simulation twin: no hardware runs it" if facts["simulation_twin"] else "compiled"
        yield f"  {facts['chips']} chips of generation {facts['generation']}; {kind} ({facts['compiler']})"
    for network in facts["networks"]:
        yield f"  network {network['name']}" + (f": {network['error']}" if "error" in network else "")
        for direction in ("inputs", "outputs"):
            for tensor in network.get(direction, ()):
                shape = ", ".join(map(str, tensor["shape"]))
                port = f"  port {tensor['port']}, {tensor['format']}" if "port" in tensor else ""
                yield f"    {direction[:-1]:6} {tensor['name']}: {tensor['dtype']}[{shape}]{port}"


def _plain_facts(path: str, kind: str, size: int, network: Network) -> dict[str, Any]:
    return {"file": path, "format": kind, "bytes": size, "networks": [_network_facts(network)]}


def _network_facts(network: Network) -> dict[str, Any]:
    return {
        "name": network.name,
        "inputs": [_tensor_facts(spec) for spec in network.inputs],
        "outputs": [_tensor_facts(spec) for spec in network.outputs],
    }


def _tensor_facts(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "shape": list(spec.shape), "dtype": str(spec.dtype), "layout": spec.layout}
