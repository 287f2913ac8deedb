"""Tensors that lie in the DSP's memory: where, how many, and that nothing else comes to lie there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from repertory import C7xVirtualMachine, c7x
from repertory.models.dynmod_io import DynmodIo
from repertory.models.program import Network
from repertory.models.sidecar import write_sidecar
from repertory.models.spec import TensorSpec
from repertory.transports.rpmsg.simulator.dsp import SimulatedDsp
from repertory.transports.rpmsg.vm.errors import (
    InputShapeError,
    InputTypeError,
    ModuleRejected,
    RunFailed,
    StagingFull,
)
from repertory.transports.rpmsg.vm.module_file import INPUT_BYTES, INPUT_BYTES_3, OUTPUT_BYTES_3, ModuleFile
from repertory.transports.rpmsg.vm.staging import TABLE
from repertory.transports.rpmsg.workspace import RESULT_SIZE
from tests.models.modules import module

from .conftest import Make, few
from .support import affine, echo, floats, several, simulated, summed, undescribed, write


def test_a_staged_tensor_is_not_overwritten_by_plain_inputs(make: Make) -> None:
    vm = make(summed(2))
    staged = vm.create_input((3,), "float32").copyfrom([1, 2, 3] * np.ones(3))
    for seed in range(3):
        plain = floats(seed, (3,))
        for inputs in ((staged, plain), (plain, staged), (staged, staged)):
            wanted = np.sum([np.asarray(each) for each in inputs], axis=0)
            assert np.allclose(vm["main"](*inputs).numpy(), wanted)
        assert np.allclose(vm["main"](plain, plain).numpy(), 2 * plain)
        assert np.array_equal(staged.numpy(), [1, 2, 3])
    assert (vm.copied_inputs, vm.staged_inputs) == (3 * 4, 3 * 4)


def test_many_staged_and_one_plain(make: Make) -> None:
    vm = make(summed(5))
    staged = [vm.create_input((3,), "float32").copyfrom(floats(seed, (3,))) for seed in range(4)]
    for seed in range(4, 7):
        total = vm["main"](*staged, floats(seed, (3,))).numpy()
        assert np.allclose(total, sum(floats(each, (3,)) for each in (0, 1, 2, 3, seed)), atol=1e-6)


def test_every_staged_tensor_is_aligned(make: Make) -> None:
    vm = make(affine())
    tensors = [vm.create_input((size,), "uint8") for size in (1, 63, 64, 65, 1)]
    assert [tensor.offset for tensor in tensors] == [0, 64, 128, 192, 320]
    vm["main"](floats())


def test_128_staged_inputs_and_no_more(make: Make) -> None:
    vm = make(summed(128))
    staged = [vm.create_input((3,), "float32").copyfrom(floats(seed, (3,))) for seed in range(128)]
    with pytest.raises(StagingFull, match="128"):
        vm.create_input((1,), "uint8")
    wanted = np.sum([floats(seed, (3,)) for seed in range(128)], axis=0)
    assert np.allclose(vm["main"](*staged).numpy(), wanted, atol=1e-4)
    plain = [floats(0, (3,))] * 128
    assert np.allclose(vm["main"](*plain).numpy(), 128 * plain[0], atol=1e-4)
    assert all(np.array_equal(tensor.numpy(), floats(seed, (3,))) for seed, tensor in enumerate(staged))


def test_the_last_byte_can_be_used_and_no_other(make: Make) -> None:
    vm = make(summed(5), input_bytes=320)
    first = vm.create_input((256,), "uint8")
    with pytest.raises(StagingFull, match="65 bytes wanted, 64 of 320 free behind 1 staged") as caught:
        vm.create_input((65,), "uint8")
    assert isinstance(caught.value, RuntimeError)
    assert str(caught.value).startswith("staging buffer full")
    vm.create_input((64,), "uint8")
    with pytest.raises(StagingFull):
        vm["main"](*[floats(0, (3,))] * 5)
    assert not first.numpy().any()


def test_plain_inputs_that_fit_exactly(make: Make) -> None:
    x = [floats(seed, (3,)) for seed in range(5)]
    vm = make(summed(5), input_bytes=5 * 64)
    assert np.allclose(vm["main"](*x).numpy(), np.sum(x, axis=0), atol=1e-6)
    view = undescribed(vm).run_nocopy(*x)
    with pytest.raises(StagingFull, match=f"{6 * 64} bytes wanted"):
        vm["main"](*x, x[0])
    assert np.allclose(view, np.sum(x, axis=0), atol=1e-6), "nothing was sent"


def test_close_gives_all_back(make: Make) -> None:
    vm = make(affine(), reopen=True, input_bytes=64)
    for seed in range(3):
        staged = vm.create_input((1, 4), "float32").copyfrom(floats(seed))
        assert np.array_equal(vm["main"](staged).numpy(), 2 * floats(seed))
        vm.close()


def test_a_staged_tensor_begins_with_zeros(make: Make) -> None:
    vm = make(affine(), reopen=True)
    vm.create_input((64,), "uint8").copyfrom(np.full(64, 0xA5))
    vm.close()
    vm["main"](np.full((1, 4), 7, np.float32))
    assert not vm.create_input((64,), "uint8").numpy().any()


@few
@pytest.mark.parametrize(
    ("source", "kind"),
    [
        (np.array([[1, 2, 3, 4]]), "int64"),
        (np.array([[1.0, 2, 3, 4]]), "float64"),
        (np.array([[True, False, True, True]]), "bool"),
    ],
)
def test_copyfrom_converts(make: Make, source: Any, kind: str) -> None:
    assert source.dtype == kind
    vm = make(affine())
    staged = vm.create_input((1, 4), "float32")
    assert staged.copyfrom(source) is staged
    assert np.array_equal(vm["main"](staged).numpy(), 2 * source.astype(np.float32))
    staged[:] = floats(5)
    assert np.array_equal(vm["main"](staged).numpy(), 2 * floats(5))


@few
@pytest.mark.parametrize(
    ("shape", "dtype", "error"),
    [
        ((1,) * 7, "float32", InputShapeError),
        ((2, -1), "float32", InputShapeError),
        ((2.5,), "float32", InputTypeError),
        ("ab", "float32", InputTypeError),
        ((2,), "bool", InputTypeError),
        ((2,), "complex64", InputTypeError),
        ((2,), "bfloat16", InputTypeError),
        ((2,), object(), InputTypeError),
        ((1 << 40,), "float32", StagingFull),
        ((1 << 40, 1 << 40), "float32", InputShapeError),
        ((0, 2**62, 2**62), "uint8", InputShapeError),
        ((2**63, 0), "uint8", InputShapeError),
        (2**63, "uint8", InputShapeError),
        ((0, 2**61), "float64", InputShapeError),
    ],
)
def test_what_cannot_be_staged(make: Make, shape: Any, dtype: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        make(affine()).create_input(shape, dtype)


@few
@pytest.mark.parametrize("source", ["text", floats(0, (4,)), np.array([[1j] * 4])])
def test_what_cannot_be_copied_in(make: Make, source: Any) -> None:
    staged = make(affine()).create_input((1, 4), "float32").copyfrom(floats(1))
    with pytest.raises((InputTypeError, InputShapeError)):
        staged.copyfrom(source)
    assert np.array_equal(staged.numpy(), floats(1))


@pytest.mark.parametrize("shape", [(0, 2**62, 2**62), (2**63, 0), (0, 2**61), -1, (1,) * 7])
def test_what_cannot_be_empty(shape: Any) -> None:
    with pytest.raises(InputShapeError):
        c7x.nd.empty(shape, "float64")


@few
@pytest.mark.parametrize("shape", [(0,), (0, 2**31), (3, 0, 2)])
def test_tensors_of_nothing(make: Make, shape: tuple[int, ...]) -> None:
    staged = make(affine()).create_input(shape)
    assert staged.copyfrom(np.zeros(shape)).shape == staged.numpy().shape == c7x.nd.empty(shape).shape


def test_what_reads_a_staged_tensor_copies(make: Make) -> None:
    vm = make(affine())
    staged = vm.create_input((1, 4), "float32").copyfrom(floats(1))
    for copy in (staged.numpy(), np.asarray(staged), np.from_dlpack(staged), staged[:, ::2]):
        copy[...] = 0
    assert np.array_equal(vm["main"](staged).numpy(), 2 * floats(1))
    with pytest.raises(ValueError, match="copies only"):
        np.asarray(staged, copy=False)
    with pytest.raises(BufferError, match="copies only"):
        np.from_dlpack(staged, copy=False)


def test_a_slice_of_a_staged_tensor_is_copied(make: Make) -> None:
    vm = make(affine())
    staged = vm.create_input((1, 8), "float32").copyfrom(floats(1, (1, 8)))
    assert np.array_equal(vm["main"](staged[:, ::2]).numpy(), 2 * floats(1, (1, 8))[:, ::2])
    assert (vm.copied_inputs, vm.staged_inputs) == (1, 0)


def test_a_staged_tensor_of_another_machine_is_copied(tmp_path: Path) -> None:
    path, dsps = write(tmp_path, affine()), [simulated(), simulated()]
    first = C7xVirtualMachine(path, address=lambda: dsps[0])
    second = C7xVirtualMachine(path, address=lambda: dsps[1])
    with first, second:
        staged = first.create_input((1, 4)).copyfrom(floats(1))
        assert np.array_equal(second["main"](staged).numpy(), 2 * floats(1))
        assert (second.copied_inputs, second.staged_inputs) == (1, 0)


# -- how much memory -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "shared", "wanted", "capacity", "outputs"),
    [
        ((None, None), False, (None, None), INPUT_BYTES, RESULT_SIZE),
        ((None, None), True, (None, None), INPUT_BYTES_3, OUTPUT_BYTES_3),
        ((64, 128), False, (None, None), 129 * 64, 128),
        ((1 << 20, 128), False, (None, None), 16 << 20, 128),
        ((10 << 20, 128), False, (None, None), 20 << 20, 128),
        ((10 << 20, 128), True, (None, None), 20 << 20, 128),
        ((10 << 20, 18 << 20), True, (None, None), RESULT_SIZE - (18 << 20) - 0x3000, 18 << 20),
        ((64, 128), False, (100, 200), 100, 200),
        ((None, None), True, (20 << 20, 4 << 20), 20 << 20, 4 << 20),
        ((None, None), True, (None, 24 << 20), RESULT_SIZE - (24 << 20) - 0x3000, 24 << 20),
    ],
)
def test_how_much_is_asked_for(
    told: tuple[Any, Any], wanted: tuple[Any, Any], capacity: int, outputs: int, *, shared: bool
) -> None:
    need, got = ModuleFile(b"x", *told).need(shared=shared, inputs=wanted[0], outputs=wanted[1])
    assert (need.module, got, need.outputs) == (1, capacity, outputs)
    assert need.inputs >= got + TABLE


def test_a_sidecar_beside_the_module_or_named(tmp_path: Path) -> None:
    spec = TensorSpec("x", (2, 3), np.dtype(np.float32))
    sidecar = write_sidecar(Network("other", (spec, TensorSpec("y", (1,), np.dtype(np.int8))), (spec,)))
    path = write(tmp_path, echo("f4"))
    assert ModuleFile.read(path, None, simulated=True).inputs == 64
    (tmp_path / "lib0.out.json").write_bytes(sidecar)
    assert ModuleFile.read(path, None, simulated=True).inputs == 128
    elsewhere = write(tmp_path, sidecar, "elsewhere.json")
    other = write(tmp_path, echo("f4"), "other.out")
    assert ModuleFile.read(other, elsewhere, simulated=True).inputs == 128
    vm = C7xVirtualMachine(path, address=simulated, sidecar=tmp_path / "none.json")
    with pytest.raises(ModuleRejected, match=r"none\.json"):
        vm["main"](floats())


@pytest.mark.parametrize(
    ("told", "known"), [((100, 200), (100, 200 + 512)), ((0, 0), (None, None)), (None, (None, None))]
)
def test_the_record_of_a_module_tells_sizes(
    tmp_path: Path, told: tuple[int, int] | None, known: tuple[int | None, int | None]
) -> None:
    record = told and DynmodIo(1, 6, *told, exact=False)
    file = ModuleFile.read(write(tmp_path, module(io=record)), None, simulated=False)
    assert (file.inputs, file.outputs) == known


def test_results_larger_than_their_memory(make: Make, dsp: SimulatedDsp) -> None:
    vm = make(several(64), output_bytes=4096)
    x = floats(1, (2, 3))
    with pytest.raises(RunFailed):
        vm["main"](x)
    assert vm.is_loaded


def test_memory_that_does_not_fit(make: Make) -> None:
    with pytest.raises(ModuleRejected, match="do not fit"):
        make(affine(), input_bytes=480 << 20)["main"](floats())
