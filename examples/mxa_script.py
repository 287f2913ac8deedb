"""A script for the vendor's module `mxa`, on a simulated card: a thread writes frames, this one reads.

Only the import is ours. On a card, start it as `REPERTORY_MXA=memx:// python mxa_script.py model.dfp`, with
the shapes of that model.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from repertory import mxa
from repertory.models.dfp import Dfp, write
from repertory.models.port import Port

FRAMES = 50


def classify(path: str) -> None:
    """Run frames through a network with an image and a vector of scores."""
    scores = np.empty(10, np.float32)
    assert mxa.open(0, 0, 3) == 0
    assert mxa.download(0, path, 0, mxa.download_type_wtmem_and_model) == 0
    assert mxa.set_stream_enable(0, 0) == 0
    writer = threading.Thread(target=send)
    writer.start()
    for _ in range(FRAMES):
        assert mxa.stream_ofmap(0, 0, scores) == 0
    writer.join()
    assert mxa.set_stream_disable(0, 1) == 0
    assert mxa.close(0) == 0
    print(f"{FRAMES} frames, the last one is a {scores.argmax()}")


def send() -> None:
    """Write the frames; a full queue makes it wait."""
    for number in range(FRAMES):
        assert mxa.stream_ifmap(0, 0, np.full((28, 28, 1), number, np.float32)) == 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        classify(sys.argv[1])
    else:
        os.environ["REPERTORY_MXA"] = "sim+memx://0?answers=hash"
        image = Port(0, shape=(28, 28, 1, 1), layer_name="image")
        digit = Port(0, shape=(1, 1, 1, 10), layer_name="digit")
        with TemporaryDirectory() as folder:
            file = Path(folder) / "digits.dfp"
            file.write_bytes(write(Dfp(models=("digits",), inputs=(image,), outputs=(digit,), chips=4)))
            classify(str(file))
