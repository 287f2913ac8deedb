"""The states of a machine, row by row: NEW, LOADED, CLOSED."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from repertory import C7xVirtualMachine, RepertoryError
from repertory.transports.rpmsg.simulator.dsp import SimulatedDsp
from repertory.transports.rpmsg.vm import machine
from repertory.transports.rpmsg.vm.errors import (
    ConnectionFailed,
    ModuleNotFound,
    ModuleRejected,
    OptionError,
    RunFailed,
    VmClosed,
)
from tests.models.modules import module

from .conftest import Make, few
from .support import affine, floats, is_loaded, simulated, slow, undescribed, write

USES: dict[str, Callable[[C7xVirtualMachine], Any]] = {
    "call": lambda vm: vm["main"](floats()),
    "run_nocopy": lambda vm: vm.run_nocopy(floats()),
    "create_input": lambda vm: vm.create_input((1, 4), "float32"),
}

use = pytest.mark.parametrize("use", USES.values(), ids=USES)


def test_the_constructor_does_no_io(tmp_path: Path) -> None:
    vm = C7xVirtualMachine("/nowhere/lib0.out", "/nowhere/libc7x_arm_runtime.so", address="nonsense")
    assert (is_loaded(vm), vm.last_cycles) == (False, 0)
    vm.close()
    vm.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"timeout": 0},
        {"timeout": float("inf")},
        {"timeout": float("nan")},
        {"timeout": "5"},
        {"timeout": None},
        {"timeout": 1j},
        {"timeout": 10**400},
        {"input_bytes": 0},
        {"input_bytes": 1.5},
        {"input_bytes": "5"},
        {"output_bytes": -1},
        {"output_bytes": [1]},
        {"sidecar": 3},
        {"so_path": None},
        {"address": 3},
        {"module_path": 3},
        {"module_path": None},
    ],
    ids=str,
)
def test_the_constructor_refuses_what_no_option_is(wrong: dict[str, Any]) -> None:
    make: Any = C7xVirtualMachine
    with pytest.raises(OptionError, match=next(iter(wrong))):
        make(**{"module_path": "lib0.out", **wrong})


def test_the_constructor_takes_numbers_of_numpy() -> None:
    numbers: dict[str, Any] = {"input_bytes": np.int64(5), "timeout": np.float32(2)}
    taken = vars(C7xVirtualMachine("lib0.out", **numbers))
    assert (taken["_sizes"], taken["_timeout"]) == ((5, None), 2.0)


def test_so_path_is_said_to_be_unused_once(caplog: pytest.LogCaptureFixture) -> None:
    machine._say_unused.cache_clear()  # pyright: ignore[reportPrivateUsage]
    with caplog.at_level(logging.INFO, "repertory.c7x"):
        C7xVirtualMachine("lib0.out")
        assert caplog.messages == []
        for _ in range(2):
            C7xVirtualMachine("lib0.out", "/opt/libc7x_arm_runtime.so")
    assert len(caplog.messages) == 1


def test_any_name_is_callable_without_io(make: Make, dsp: SimulatedDsp) -> None:
    vm = make(affine())
    calls = [vm[name] for name in ("main", "no such function", "")]
    assert not is_loaded(vm)
    assert dsp.firmware.loaded == []
    assert all(np.array_equal(call(floats()).numpy(), 2 * floats()) for call in calls)
    vm.close()
    assert callable(vm["main"])
    with pytest.raises(TypeError, match="no function's name"):
        vm[3]  # pyright: ignore[reportArgumentType]


@few
@use
def test_a_new_machine_connects_and_loads_at_its_first_use(
    make: Make, dsp: SimulatedDsp, use: Callable[[C7xVirtualMachine], Any]
) -> None:
    vm = make(affine())
    assert not is_loaded(vm)
    use(vm)
    assert is_loaded(vm)
    assert dsp.firmware.loaded == [1]
    vm.close()
    assert not is_loaded(vm)
    assert dsp.firmware.loaded == []


@use
def test_a_missing_module_is_found_out_at_the_first_use(
    use: Callable[[C7xVirtualMachine], Any], tmp_path: Path
) -> None:
    vm = C7xVirtualMachine(tmp_path / "none.out", address=simulated)
    for _ in range(2):
        with pytest.raises(FileNotFoundError, match=r"none\.out") as caught:
            use(vm)
        assert isinstance(caught.value, ModuleNotFound)
        assert not is_loaded(vm)
    write(tmp_path, affine(), "none.out")
    use(vm)
    vm.close()


@few
@pytest.mark.parametrize(
    ("data", "complaint"),
    [(b"no ELF", "ELF"), (module(), "twin"), (affine()[:-40], "section")],
    ids=["no ELF", "no twin", "cut"],
)
def test_a_bad_module_is_refused(make: Make, dsp: SimulatedDsp, data: bytes, complaint: str) -> None:
    vm = make(data)
    with pytest.raises(ModuleRejected, match=complaint) as caught:
        vm["main"](floats())
    assert isinstance(caught.value.__cause__, RepertoryError)
    assert not is_loaded(vm)
    assert dsp.firmware.loaded == []


def test_a_directory_is_no_module(tmp_path: Path) -> None:
    with pytest.raises(ModuleRejected, match="cannot be read"):
        C7xVirtualMachine(tmp_path, address=simulated)["main"](floats())


def test_a_failed_load_leaves_a_new_machine(tmp_path: Path) -> None:
    dsp = simulated(heap_mb=1)
    vm = C7xVirtualMachine(write(tmp_path, affine()), address=lambda: dsp)
    with pytest.raises(ModuleRejected, match=r"NO_MEMORY \(-3\)") as caught:
        vm["main"](floats())
    assert caught.value.status == -3
    assert not is_loaded(vm)
    assert dsp.leaks == []


@pytest.mark.parametrize(
    ("address", "complaint"),
    [
        ("sim+c7x://9", "no DSP"),
        ("sim+c7x://?sped=1", "sped"),
        ("c7x://7e000000.dsp?sysfs=/nowhere&dev=/nowhere", "7e000000"),
        ("cpu://", "c7x"),
        ("nonsense", "nonsense"),
    ],
)
def test_no_dsp(tmp_path: Path, address: str, complaint: str) -> None:
    path = write(tmp_path, module())
    with pytest.raises(ConnectionFailed, match=complaint):
        C7xVirtualMachine(path, address=address)["main"](floats())


def test_a_twin_is_refused_by_real_hardware(tmp_path: Path) -> None:
    address = "c7x://7e000000.dsp?sysfs=/nowhere&dev=/nowhere"
    with pytest.raises(ModuleRejected, match="twin"):
        C7xVirtualMachine(write(tmp_path, affine()), address=address)["main"](floats())


def test_a_dsp_serves_one_machine(make: Make) -> None:
    first, second = make(affine()), make(affine())
    first["main"](floats())
    with pytest.raises(ConnectionFailed, match="in use"):
        second["main"](floats())
    first.close()
    assert np.array_equal(second["main"](floats()).numpy(), 2 * floats())


def test_an_address_is_one_dsp(tmp_path: Path) -> None:
    path, address = write(tmp_path, affine()), "sim+c7x://?latency_ms=0&load_ms=0&tsc_mhz=7"
    first, second = (C7xVirtualMachine(path, address=address) for _ in range(2))
    with first, second:
        first["main"](floats())
        with pytest.raises(ConnectionFailed, match="in use"):
            second["main"](floats())


@few
@use
def test_a_closed_machine_raises(make: Make, use: Callable[[C7xVirtualMachine], Any]) -> None:
    vm = make(affine())
    use(vm)
    vm.close()
    vm.close()
    with pytest.raises(VmClosed) as caught:
        use(vm)
    assert isinstance(caught.value, RuntimeError)


@few
@use
def test_a_machine_that_was_never_used_is_closed_too(
    make: Make, use: Callable[[C7xVirtualMachine], Any]
) -> None:
    vm = make(affine())
    vm.close()
    with pytest.raises(VmClosed):
        use(vm)


@few
@use
def test_reopen_connects_again_silently(
    make: Make, dsp: SimulatedDsp, use: Callable[[C7xVirtualMachine], Any]
) -> None:
    vm = make(affine(), reopen=True)
    use(vm)
    vm.close()
    use(vm)
    assert is_loaded(vm)
    assert dsp.firmware.loaded == [2]


def test_a_block_closes_after_an_error_too(make: Make, dsp: SimulatedDsp) -> None:
    vm = make(affine())
    vm["main"](floats())
    with pytest.raises(ZeroDivisionError), vm:
        _ = 1 / 0
    assert dsp.firmware.loaded == []


def test_a_machine_that_is_dropped_unloads(make: Make, dsp: SimulatedDsp, tmp_path: Path) -> None:
    vm = C7xVirtualMachine(write(tmp_path, affine()), address=lambda: dsp)
    vm["main"](floats())
    assert dsp.firmware.loaded == [1]
    del vm
    assert dsp.firmware.loaded == []
    assert dsp.leaks == []


def test_last_cycles_are_those_of_the_last_success(make: Make) -> None:
    vm = make(slow(0.002))
    assert vm.last_cycles == 0
    vm["main"](floats())
    assert vm.last_cycles == 2_000_000
    with pytest.raises(RunFailed, match="CALL") as caught:
        undescribed(vm)["main"](floats(shape=(9,)))
    assert caught.value.status == -11
    assert vm.last_cycles == 2_000_000
    assert np.array_equal(vm["main"](floats()).numpy(), 2 * floats()), "it can be used on"
    vm.close()
    assert vm.last_cycles == 2_000_000


def test_a_failed_run_keeps_the_module_loaded(make: Make, dsp: SimulatedDsp) -> None:
    vm = make(affine())
    vm["main"](floats())
    for _ in range(2):
        with pytest.raises(RunFailed):
            undescribed(vm)["main"](floats(), floats())
    assert is_loaded(vm)
    assert dsp.firmware.loaded == [1]
    assert dsp.firmware.jobs_failed == 2


def test_its_repr_tells_the_state(make: Make) -> None:
    vm = make(affine())
    assert repr(vm).endswith("not loaded>")
    vm["main"](floats())
    assert repr(vm).endswith("out loaded>")
    vm.close()
    assert repr(vm).endswith("closed>")
