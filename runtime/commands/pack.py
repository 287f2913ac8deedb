"""`repertory pack`: model files for simulated devices."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import final

from repertory.models.dfp import Dfp
from repertory.models.errors import ArtifactError, ConfigError
from repertory.models.formats import PortFormat
from repertory.models.pack import pack_memx

from .command import Command, printed
from .inspect import dfp_facts, dfp_text

__all__ = ["Pack"]

_FORMATS = {
    "fp32": PortFormat.FLOAT32,
    "bf16": PortFormat.BF16,
    "gbf80": PortFormat.GBF80,
    "gbf80-row": PortFormat.GBF80_ROW,
    "rgb888": PortFormat.RGB888,
}


@final
class Pack(Command):
    """Write a model file that simulated devices run, from ONNX graphs.

    This is no compiler. The file describes the ports that a compiled model would have and carries the ONNX
    graph for the simulator to compute; there is no code for a chip in it, it is marked as a simulation
    twin, and real hardware refuses it. For hardware, use the vendor's compiler.

    A device port has one fixed shape: where the graph's input is open, give --shape. The batch is 1: a
    frame is one item of the batch.

    Ports are FLOAT32 unless --format says otherwise. fp32, bf16, gbf80 and gbf80-row are for inputs and
    outputs; what they round, the simulated device rounds too. rgb888 is for inputs: its callers give uint8,
    which a float32 graph gets as the numbers 0 to 255. uint8 inputs are rgb888 in any case.

    example: repertory pack pnet.onnx --family memx --shape input_1=1,352,272,3 -o pnet.dfp
    """

    name = "pack"
    summary = "make a model file for a simulated device (no compiler)"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "model", nargs="+", type=Path, help="ONNX files; several make one DFP of several networks"
        )
        parser.add_argument("-o", "--output", type=Path, required=True, help="the file to write")
        parser.add_argument("--family", choices=["memx"], default="memx", help="whose format (memx: DFP)")
        parser.add_argument(
            "--shape", action="append", default=[], metavar="NAME=1,H,W,C", help="an input's fixed shape"
        )
        parser.add_argument(
            "--layout",
            action="append",
            default=[],
            metavar="NAME=NHWC",
            help="a tensor's axes, if guessed wrong",
        )
        parser.add_argument(
            "--format",
            action="append",
            default=[],
            metavar="[NAME=]FORMAT",
            help=f"a tensor's port format, or that of all unnamed ones: {', '.join(_FORMATS)}",
        )
        parser.add_argument("--chips", type=int, default=4, help="chips of the device group (default 4)")
        parser.add_argument(
            "--co-map",
            action="store_true",
            help="several networks are resident together, with no swap between",
        )
        parser.add_argument("--latency-ms", type=float, help="simulated latency of a frame")
        parser.add_argument("--interval-ms", type=float, help="simulated time between two frames")
        parser.add_argument("--json", action="store_true", help="print facts about the file as JSON")

    def run(self, options: argparse.Namespace) -> None:
        named, for_all = _port_formats(options.format)
        data = pack_memx(
            [(path.stem, _read(path)) for path in options.model],
            shapes={name: _extents(name, text) for name, text in _pairs(options.shape)},
            layouts=dict(_pairs(options.layout)),
            chips=options.chips,
            co_map=options.co_map,
            formats=named,
            port_format=for_all,
            latency=_seconds(options.latency_ms),
            interval=_seconds(options.interval_ms),
        )
        try:
            options.output.write_bytes(data)
        except OSError as error:
            raise ConfigError(f"{options.output}: {error.strerror}") from error
        facts = dfp_facts(str(options.output), len(data), Dfp.read(data))
        printed(facts, dfp_text(facts), json=options.json)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ArtifactError(f"{path}: {error.strerror}") from error


def _pairs(texts: list[str]) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for text in texts:
        name, separator, value = text.rpartition("=")
        if not separator or not name:
            raise ConfigError(f"{text!r}: NAME=VALUE is wanted")
        pairs.append((name, value))
    return pairs


def _extents(name: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(extent) for extent in text.split(","))
    except ValueError:
        raise ConfigError(f"--shape {name}={text}: whole numbers with commas are wanted") from None


def _port_formats(texts: list[str]) -> tuple[dict[str, PortFormat], PortFormat]:
    """Return the formats by tensor, and that of all others; the last word counts."""
    named: dict[str, PortFormat] = {}
    for_all = PortFormat.FLOAT32
    for text in texts:
        name, separator, value = text.rpartition("=")
        if value not in _FORMATS:
            raise ConfigError(f"--format {text}: {value!r} is none of {', '.join(_FORMATS)}")
        if separator:
            named[name] = _FORMATS[value]
        else:
            for_all = _FORMATS[value]
    return named, for_all


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
