"""The C side as Python declares it, against numbers that were taken down apart from it."""

from __future__ import annotations

import inspect
import subprocess
from ctypes import c_uint32, c_uint64, c_void_p, sizeof
from typing import Any

import pytest

from repertory.transports.xm_npu.cl.library import OPTIONAL, InOut, Tensor, TensorBatch, XmediaCl
from repertory.transports.xm_npu.cl.marshal import CInOut
from repertory.transports.xm_npu.cl.signatures import SIGNATURES
from repertory.transports.xm_npu.cl.structs import MemInfoStruct, ProfilingStruct, Structs

from .stub import SOURCE

SIZES = {
    32: {"shape": 72, "quant": 8, "list": 8, "batch": 36, "tensor": 96, "inout": 16},
    64: {"shape": 72, "quant": 8, "list": 16, "batch": 36, "tensor": 112, "inout": 32},
}
OFFSETS = {
    32: {"tensor_id": 0, "addr": 4, "shape": 8, "quant": 80, "size": 88, "name": 92},
    64: {"tensor_id": 0, "addr": 8, "shape": 16, "quant": 88, "size": 96, "name": 104},
}
POINTERS = {32: c_uint32, 64: c_uint64}


@pytest.mark.parametrize("bits", [32, 64])
def test_structures_lie_as_the_headers_have_them(bits: int) -> None:
    structs = Structs(POINTERS[bits])
    assert {name: sizeof(getattr(structs, name)) for name in SIZES[bits]} == SIZES[bits]
    tensor: Any = structs.tensor
    assert {name: getattr(tensor, name).offset for name, _ in tensor._fields_} == OFFSETS[bits]
    shape: Any = structs.shape
    assert [getattr(shape, name).offset for name, _ in shape._fields_] == [0, 4, 36, 68]


def test_structures_without_pointers() -> None:
    assert sizeof(MemInfoStruct) == 28
    assert sizeof(ProfilingStruct) == 8
    assert MemInfoStruct.names[-2:] == ("memory_reuse_type", "private_data_size")


def test_this_process_has_its_own_layout() -> None:
    bits = 8 * sizeof(c_void_p)
    assert sizeof(Structs(c_void_p).tensor) == SIZES[bits]["tensor"]


def test_c_agrees_for_the_boards_32_bits() -> None:
    """`stub.c` asserts the same numbers while it is compiled."""
    subprocess.run(["cc", "-m32", "-ffreestanding", "-fsyntax-only", SOURCE], check=True)


def test_every_method_is_a_function_with_a_signature() -> None:
    methods = {name: method for name, method in inspect.getmembers(XmediaCl) if name.startswith("xmedia_")}
    assert set(methods) == set(SIGNATURES)
    assert set(SIGNATURES) >= OPTIONAL


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("xmedia_mmz_alloc", 3),
        ("xmedia_mmz_flush_cache", 3),
        ("xmedia_cl_create_context", 3),
        ("xmedia_cl_graph_querysize_from_buff", 3),
        ("xmedia_cl_graph_loadmodel_from_file_withmem", 7),
        ("xmedia_cl_graph_loadmodel_from_buff", 3),
        ("xmedia_cl_graph_get_input", 3),
        ("xmedia_cl_graph_set_inout", 3),
        ("xmedia_cl_set_event_callback", 4),
        ("xmedia_cl_set_profiling", 2),
    ],
)
def test_signatures_have_as_many_arguments_as_the_headers(name: str, count: int) -> None:
    assert len(SIGNATURES[name]) == count


def test_arrays_of_batches_are_zeros() -> None:
    """Mistake: memory as `malloc` gives it is read as the configuration of batches."""
    io = InOut(num=3).allocate()
    assert io.tensor_batch == [TensorBatch(0, (0,) * 8)] * 3
    assert io.current_batch == [0, 0, 0]
    told = CInOut(io)
    told.read_into(again := InOut(0, [], [], []))
    assert again == io


def test_tensors_pass_through_c_unchanged() -> None:
    tensor = Tensor(7, 0x1000, 3, tuple(range(8)), tuple(range(8, 16)), 4, 0.5, -3, 24, b"a name")
    io = InOut(1, [tensor], [TensorBatch(2, (9,) * 8)], [4])
    CInOut(io).read_into(again := InOut(0, [], [], []))
    assert again == io
    assert CInOut(InOut(2), room=5).struct.tensor is None
