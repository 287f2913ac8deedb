"""`repertory pack`: model files for simulated devices."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final, final

from repertory.models.dfp import Dfp
from repertory.models.errors import ConfigError
from repertory.models.program import Artifact

from .command import Command, printed
from .dfp_facts import dfp_facts, dfp_text
from .dynmod_facts import dynmod_facts, dynmod_text
from .pack_dfp import FORMATS, pack_dfp
from .pack_dynmod import pack_dynmod
from .pack_family import family_of
from .pack_xmm import NPU_FORMATS, pack_xmm
from .xmm_facts import xmm_facts, xmm_text

__all__ = ["Pack"]


@final
class Pack(Command):
    """Write a model file that simulated devices run, from ONNX graphs.

    This is no compiler. The file describes the ports that a compiled model would have and carries the ONNX
    graph for the simulator to compute; there is no code for a chip in it, it is marked as a simulation
    twin, and real hardware refuses it. For hardware, use the vendor's compiler.

    The suffix of --output says which family's file it is (.dfp, .out, .xmm), if --family does not; where both
    do, they must agree.

    Its shapes are fixed: where the graph's input is open, give --shape. The batch is 1: a frame is one item
    of the batch.

    Family memx: a DFP. Ports are FLOAT32 unless --format says otherwise. fp32, bf16, gbf80 and gbf80-row are
    for inputs and outputs; what they round, the simulated device rounds too. rgb888 is for inputs: its
    callers give uint8, which a float32 graph gets as the numbers 0 to 255. uint8 inputs are rgb888 in any
    case.

    Family c7x: a module for a DSP, lib0.out, of one network. Tensors go as the graph has them, so that there
    are no formats and no layouts; a batch that the graph fixes may be any.

    Family xm-npu: an .xmm for a GK7206 NPU, of one network. The --format of a tensor is
    TYPE[:SCALE[:ZERO_POINT]]; stored numbers stand for (stored - ZERO_POINT) * SCALE, which is what the graph
    gets and gives. Without one float32 is fp32, and others are as the graph has them. There are no layouts:
    axes are as the graph has them; a batch that the graph fixes may be any.

    Examples:
      repertory pack pnet.onnx --family memx --shape input_1=1,352,272,3 -o pnet.dfp
      repertory pack rnet.onnx -o lib0.out
      repertory pack rnet.onnx --family xm-npu --format input_2=u8:0.0078125:128 -o rnet.xmm
    """

    name = "pack"
    summary = "make a model file for a simulated device (no compiler)"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "model", nargs="+", type=Path, help="ONNX files; several make one DFP of several networks"
        )
        parser.add_argument("-o", "--output", type=Path, required=True, help="the file to write")
        parser.add_argument(
            "--family",
            choices=[*_FAMILIES],
            help="whose format (memx: .dfp; c7x: .out; xm-npu: .xmm); by the output's suffix without it",
        )
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
            help=f"a tensor's port format, or that of all unnamed ones: {', '.join(FORMATS)}; for xm-npu"
            f" TYPE[:SCALE[:ZERO_POINT]], {', '.join(NPU_FORMATS)}",
        )
        parser.add_argument("--chips", type=int, help="chips of the device group (default 4)")
        parser.add_argument(
            "--co-map",
            action="store_true",
            help="several networks are resident together, with no swap between",
        )
        parser.add_argument("--latency-ms", type=float, help="simulated latency of a frame")
        parser.add_argument("--interval-ms", type=float, help="simulated time between two frames")
        parser.add_argument(
            "--private-data", type=Path, metavar="FILE", help="xm-npu: what applications get with the model"
        )
        parser.add_argument(
            "--row-alignment", type=int, metavar="BYTES", help="xm-npu: to which rows are padded (default 1)"
        )
        parser.add_argument("--work-bytes", type=int, metavar="BYTES", help="xm-npu: workspace (default 0)")
        parser.add_argument(
            "--reuse",
            type=int,
            help="xm-npu: type of memory reuse: 1, 2, 3 if inputs, outputs or both lie in the workspace",
        )
        parser.add_argument("--json", action="store_true", help="print facts about the file as JSON")

    def run(self, options: argparse.Namespace) -> None:
        pack, facts_of, text_of = _FAMILIES[family_of(options.family, options.output)]
        data = pack(options)
        try:
            options.output.write_bytes(data)
        except OSError as error:
            raise ConfigError(f"{options.output}: {error.strerror}") from error
        facts = facts_of(str(options.output), data)
        printed(facts, text_of(facts), json=options.json)


def _facts_of_dfp(path: str, data: bytes) -> dict[str, Any]:
    return dfp_facts(path, len(data), Dfp.read(data))


def _facts_of_dynmod(path: str, data: bytes) -> dict[str, Any]:
    return dynmod_facts(path, Artifact(path, data))


_FAMILIES: Final = {
    "memx": (pack_dfp, _facts_of_dfp, dfp_text),
    "c7x": (pack_dynmod, _facts_of_dynmod, dynmod_text),
    "xm-npu": (pack_xmm, xmm_facts, xmm_text),
}
