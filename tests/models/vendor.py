"""DFP files as a vendor's compiler writes them."""

from __future__ import annotations

import struct
from typing import Any

from repertory.models import mxpack, twin
from repertory.models.twin import Twin, TwinNetwork

__all__ = ["HEADER", "fields", "file", "port", "small_twin"]

HEADER = struct.pack("<QB", 6, 1)


def port(**changes: Any) -> dict[str, Any]:
    """A port as a vendor's compiler writes it."""
    return {
        "port": 0,
        "active": True,
        "port_set": 0,
        "mpu_id": 0,
        "model_index": 0,
        "layer_name": "x",
        "packing_format": {"name": "fp32", "as_int": 5},
        "mxa_shape": [24, 24, 1, 3],
    } | changes


def fields(**changes: Any) -> dict[str, Any]:
    return {
        "models": ["net"],
        "compiler_version": "2.1",
        "compile_timestamp": "today",
        "num_inports": 1,
        "num_outports": 1,
        "sim_meta": {"intgen": 4, "num_mpus": 4, "towers": 1},
        "sim_dfp": {"enabled": False, "data": b""},
        "inport_info": [port()],
        "outport_info": [port(layer_name="y", mxa_shape=[1, 1, 1, 10])],
        "hw_dfp": b"compiled",
        "something_new": {"a": [1, 2]},
    } | changes


def file(**changes: Any) -> bytes:
    return HEADER + mxpack.encode(fields(**changes))


def small_twin(name: str = "net") -> Twin:
    return Twin(twin.VERSION, [TwinNetwork(name, b"graph", ["x"], ["y"], 0.01, 0.004)])
