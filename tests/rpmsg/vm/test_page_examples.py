"""The Python examples of the vendor's page; import and path are other ones, the environment says where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from repertory import C7xVirtualMachine
from repertory import c7x as tvm
from repertory.models.spec import Array
from repertory.transports.rpmsg.vm.connect import ADDRESS

from .support import classifier, floats, write

ADDRESSES = (
    "sim+c7x://?latency_ms=0&load_ms=0",
    "sim+c7x://?latency_ms=0&load_ms=0&wire=3",
    "sim+c7x://?latency_ms=0&load_ms=0&coherent=false",
)


@pytest.fixture(params=ADDRESSES)
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(ADDRESS, request.param)
    return str(write(tmp_path, classifier(), "resnet18.out"))


@pytest.fixture
def scores(path: str) -> Array:
    """What the classifier says of `floats(7)`."""
    with C7xVirtualMachine(path) as vm:
        found: Array = vm["main"](floats(7, (1, 3, 224, 224))).numpy()
    assert found.shape == (1, 2)
    assert abs(float(found.sum()) - 1) < 1e-5
    return found


def test_standard_usage(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    vm = C7xVirtualMachine(path)
    inp = tvm.nd.array(np.random.randn(1, 3, 224, 224).astype("float32"))  # noqa: NPY002
    out = vm["main"](inp)  # returns tvm.nd.NDArray
    print(out.numpy().argmax())  # noqa: T201

    vm.close()
    assert isinstance(out, tvm.nd.NDArray)
    assert capsys.readouterr().out in {"0\n", "1\n"}
    assert not vm.is_loaded


def test_context_manager(path: str, scores: Array) -> None:
    inp = floats(7, (1, 3, 224, 224))
    with C7xVirtualMachine(path) as vm:
        out = vm["main"](inp)
    assert np.array_equal(out.numpy(), scores)


def test_zero_copy_outputs(path: str, scores: Array) -> None:
    vm = C7xVirtualMachine(path)
    data = floats(7, (1, 3, 224, 224))
    kept: list[Array] = []

    def process(result: Any) -> None:
        kept.append(result[0] * 1)

    out_np = vm.run_nocopy(data)  # numpy array, zero-copy
    process(out_np)  # must finish before the next run_nocopy() call
    assert np.array_equal(kept[0], scores[0])
    vm.close()


def test_zero_copy_inputs(path: str, scores: Array) -> None:
    vm = C7xVirtualMachine(path)
    frame = floats(7, (1, 3, 224, 224))
    staging = vm.create_input((1, 3, 224, 224), "float32")  # backed by staging DDR
    staging.copyfrom(frame)  # writes directly to staging buffer
    out = vm["main"](staging)  # no input copy
    assert np.array_equal(out.numpy(), scores)
    assert (vm.copied_inputs, vm.staged_inputs) == (0, 1)
    vm.close()


def test_properties(path: str) -> None:
    with C7xVirtualMachine(path) as vm:
        assert vm.last_cycles == 0
        assert vm.is_loaded is False
        vm["main"](floats(7, (1, 3, 224, 224)))
        assert isinstance(vm.last_cycles, int)
        assert vm.is_loaded is True


def test_constructor(path: str) -> None:
    vm = C7xVirtualMachine(path, "libc7x_arm_runtime.so")
    assert C7xVirtualMachine(module_path=path, so_path="libc7x_arm_runtime.so").is_loaded is False
    assert vm["main"](tvm.nd.array(floats(7, (1, 3, 224, 224)))).shape == (1, 2)
    vm.close()
