from __future__ import annotations

import math
import struct
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repertory.models import layout, mxpack, twin
from repertory.models.dfp import PACKED_BY, Dfp, Hpoc, Port, RangeConvert, distinct, with_twin, write
from repertory.models.errors import ArtifactError
from repertory.models.formats import PortFormat
from repertory.models.twin import Twin, TwinNetwork

from .mutate import mutations
from .vendor import HEADER, fields, port, small_twin

few = settings(derandomize=True, deadline=None, max_examples=100)


def read(**changes: Any) -> Dfp:
    return Dfp.read(HEADER + mxpack.encode(fields(**changes)))


def test_a_vendors_file() -> None:
    dfp = read()
    assert (dfp.models, dfp.chips, dfp.generation) == (("net",), 4, 4)
    assert (dfp.compiler_version, dfp.compile_timestamp, dfp.hw_size) == ("2.1", "today", 8)
    assert dfp.twin is None
    assert not dfp.is_twin
    (network,) = dfp.networks
    assert network.network.inputs[0].shape == (1, 24, 24, 3)
    assert network.network.outputs[0].shape == (1, 1, 1, 10)
    assert network.inputs[0].nbytes == 24 * 24 * 3 * 4


def test_optional_keys_may_be_missing() -> None:
    kept = {key: fields()[key] for key in ("sim_meta", "inport_info", "outport_info")}
    dfp = Dfp.read(HEADER + mxpack.encode(kept))
    assert dfp.models == ("model_0",)
    assert dfp.hw_size == 0
    assert not dfp.is_twin


@pytest.mark.parametrize("key", ["sim_meta", "inport_info", "outport_info"])
def test_what_a_device_relies_on_may_not_be_missing(key: str) -> None:
    kept = {other: value for other, value in fields().items() if other != key}
    with pytest.raises(ArtifactError, match=key):
        Dfp.read(HEADER + mxpack.encode(kept))


@pytest.mark.parametrize(
    ("data", "message", "offset"),
    [
        (b"", "too short", 0),
        (HEADER[:8], "too short", 8),
        (struct.pack("<QB", 5, 1), "version 5 is the legacy format", 0),
        (struct.pack("<QB", 7, 1), "version 7 is not known", 0),
        (b"\x08\x07\x12\x07pytorch", "no DFP file", 0),
        (struct.pack("<QB", 6, 2) + bytes(4), "0x02 stands where 0x01", 8),
        (HEADER + b"\x01", "4 bytes are wanted", 9),
    ],
)
def test_foreign_and_truncated_files(data: bytes, message: str, offset: int) -> None:
    with pytest.raises(ArtifactError, match=message) as caught:
        Dfp.read(data)
    assert caught.value.offset == offset


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inport_info": [port(port=32)]}, "numbers are 0 to 31"),
        ({"inport_info": [port(), port()], "num_inports": 2}, "there twice"),
        ({"inport_info": [port(mxa_shape=[0, 1, 1, 1])]}, "extent below 1"),
        ({"inport_info": [port(mxa_shape=[1, -1, -1, 1])]}, "extent below 1"),
        ({"inport_info": [port(mxa_shape=[24, 24, 3])]}, "mxa_shape"),
        ({"inport_info": [port(mxa_shape=[2**32, 2**32, 1, 1])]}, "exceeds"),
        ({"inport_info": [port(mxa_shape=[8192, 8193, 1, 1])]}, "exceeds 268435456"),
        ({"inport_info": [port(packing_format={"name": "?", "as_int": 7})]}, "7"),
        ({"inport_info": [port(packing_format={})]}, "as_int"),
        ({"inport_info": [{"port": 0, "active": True}]}, "without packing_format"),
        ({"inport_info": [port(model_index=1)]}, "model 1 of 1"),
        ({"inport_info": [port(active=False)]}, "no active input"),
        ({"inport_info": [port(active="yes")]}, "active"),
        ({"inport_info": [port(layout="NCHX")]}, "no layout"),
        ({"inport_info": [port(layout="NC")]}, "does not take"),
        (
            {"inport_info": [port(layout="NCHW", raw_shape={"0": 1, "1": 24, "2": 24, "3": 3})]},
            "does not take",
        ),
        ({"num_inports": 3}, "num_inports is 3, 1 are described"),
        ({"outport_info": [port(packing_format={"as_int": 2})]}, "RGB888, an input's format"),
        (
            {"outport_info": [port(range_convert={"enabled": True, "shift": 1.0, "scale": 2.0})]},
            "output port 0 has a range_convert",
        ),
        (
            {"inport_info": [port(range_convert={"enabled": True, "shift": 1.0, "scale": 0.0})]},
            "no range is converted",
        ),
        (
            {"inport_info": [port(hpoc={"enabled": True, "shape": [24, 24, 1, 4], "channels": [0]})]},
            "input port 0 has an hpoc",
        ),
        ({"models": ["net"] * 257}, "models"),
        ({"outport_info": [port(port_set=1)]}, r"port sets \[0, 1\]"),
        (
            {"outport_info": [port(hpoc={"enabled": True, "shape": [24, 24, 1, 5], "channels": [1]})]},
            "is not",
        ),
        (
            {"outport_info": [port(hpoc={"enabled": True, "shape": [24, 24, 1, 4], "channels": [4]})]},
            "not there",
        ),
        ({"outport_info": [port(hpoc={"enabled": True, "shape": [24, 24], "channels": [1]})]}, "h, w, z, c"),
        ({"sim_meta": {"intgen": 4, "num_mpus": 5}}, "made for 5 chips"),
        ({"models": ["a", "b"]}, "'b' has no active input"),
        ({"hw_dfp": 3}, "no bytes"),
    ],
)
def test_what_no_device_could_take(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        read(**changes)


def test_vendors_may_count_inactive_ports_or_not() -> None:
    ports = [port(), {"port": 1, "active": False}]
    for count in (1, 2):
        dfp = read(inport_info=ports, num_inports=count)
        assert [item.active for item in dfp.inputs] == [True, False]
        assert len(dfp.networks[0].inputs) == 1


def test_shapes_may_be_arrays_and_names_may_repeat() -> None:
    ports = [port(port=n, model_index=n, mxa_shape=np.array([24, 24, 1, 3], np.uint16)) for n in range(2)]
    dfp = read(models=["net", "net"], inport_info=ports, num_inports=2, outport_info=ports, num_outports=2)
    assert dfp.models == ("net", "net-2")
    assert dfp.networks[1].inputs[0].shape == (24, 24, 1, 3)


def test_networks_of_one_set_are_resident_together_and_others_are_configurations() -> None:
    ports = [port(port=n % 2, model_index=n, port_set=n // 2) for n in range(3)]
    dfp = read(models=["a", "b", "c"], inport_info=ports, outport_info=ports, num_inports=3, num_outports=3)
    assert [(network.name, network.configuration) for network in dfp.networks] == [
        ("a", 0),
        ("b", 0),
        ("c", 1),
    ]


@pytest.mark.parametrize(
    ("raw", "shape", "axes"),
    [
        ((1, 24, 24, 3), (24, 24, 1, 3), "NHWC"),
        ((1, 3, 48, 32), (48, 32, 1, 3), "NCHW"),
        ((1, 10), (1, 1, 1, 10), "NC"),
        ((1, 7, 5), (1, 7, 1, 5), "NWC"),
        ((1, 5, 7), (1, 7, 1, 5), "NCW"),
        ((1,), (1, 1, 1, 1), "N"),
        ((1, 4, 5, 2, 3), (4, 5, 2, 3), "NHWZC"),
        ((1, 3, 2, 4, 5), (4, 5, 2, 3), "NCZHW"),
    ],
)
def test_the_callers_tensor_and_the_wire(raw: tuple[int, ...], shape: Any, axes: str) -> None:
    item = Port(0, shape=shape, raw_shape=raw)
    assert (item.spec.shape, item.spec.layout) == (raw, axes)
    array = np.arange(math.prod(raw), dtype=np.float32).reshape(raw)
    wire = item.to_wire(array)
    assert wire.shape == shape
    assert np.shares_memory(wire, array)
    frame = np.empty(item.nbytes, np.uint8)
    item.encode(array, frame)
    assert np.array_equal(item.decode(frame), array)
    if "C" in axes:
        place = [0] * len(raw)
        place[axes.index("C")] = raw[axes.index("C")] - 1
        assert wire[0, 0, 0, -1] == array[tuple(place)]


def test_a_raw_shape_that_no_transposition_reaches_is_passed_over() -> None:
    item = Port(0, shape=(20, 20, 1, 84), raw_shape=(1, 8400, 4))
    assert item.spec.shape == (1, 20, 20, 84)
    assert Port(0, shape=(2, 3, 4, 5)).spec.shape == (1, 2, 3, 4, 5)


@few
@given(st.permutations("HWZC"), st.tuples(*[st.integers(1, 5)] * 4))
def test_every_layout_is_a_view(letters: list[str], shape: Any) -> None:
    axes = "N" + "".join(letter for letter in letters if shape["HWZC".index(letter)] > 1)
    array = np.arange(math.prod(shape)).reshape(layout.extents(axes, shape))
    assert layout.fits(axes, array.shape, shape)
    wire = layout.to_wire(array, axes, shape)
    assert wire.shape == shape
    assert np.shares_memory(wire, array)
    wire += 1
    assert np.array_equal(array.reshape(-1), np.arange(1, array.size + 1))


def test_dropped_channels_are_on_the_wire_and_not_with_the_caller() -> None:
    item = Port(0, shape=(2, 2, 1, 3), hpoc=Hpoc((2, 2, 1, 5), (1, 4)))
    assert item.nbytes == 2 * 2 * 5 * 4
    frame = np.arange(20, dtype=np.float32).view(np.uint8)
    assert item.decode(frame)[0, 0, 0].tolist() == [0, 2, 3]
    assert item.spec.shape == (1, 2, 2, 3)


def test_packed_pixels_can_be_read_about_and_not_called() -> None:
    dfp = read(inport_info=[port(packing_format={"name": "yuv422", "as_int": 3})])
    with pytest.raises(ArtifactError, match="YUV422 ports are not supported"):
        _ = dfp.networks[0].network


names = st.text(min_size=1, max_size=8)
extents = st.integers(1, 40)


@st.composite
def ports(draw: st.DrawFn, *, output: bool, model: int) -> Port:
    shape = draw(st.tuples(extents, extents, extents, extents))
    item = Port(
        number=model,
        port_set=draw(st.just(model % 3)),
        model_index=model,
        mpu_id=draw(st.integers(0, 15)),
        layer_name=draw(st.text(max_size=8)),
        format=draw(st.sampled_from([PortFormat.FLOAT32, PortFormat.BF16, PortFormat.GBF80_ROW])),
        shape=shape,
        raw_shape=draw(st.none() | st.just((1, *shape)) | st.just((1, 8400, 4))),
        raw_dtype=draw(st.sampled_from(["", "float32"])),
    )
    if output:
        wire = (*shape[:3], shape[3] + 1)
        return replace(item, hpoc=draw(st.none() | st.just(Hpoc(wire, (shape[3],)))))
    return replace(item, range_convert=draw(st.none() | st.just(RangeConvert(-0.5, 2.0))))


@st.composite
def files(draw: st.DrawFn) -> Dfp:
    models = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    twinned = [TwinNetwork(name, b"x", ["a"], ["b"], draw(st.none() | st.floats(0, 9))) for name in models]
    return Dfp(
        models=tuple(models),
        inputs=tuple(draw(ports(output=False, model=n)) for n in range(len(models))),
        outputs=(*(draw(ports(output=True, model=n)) for n in range(len(models))), Port(9, active=False)),
        chips=draw(st.sampled_from([1, 2, 3, 4, 8, 12, 16])),
        generation=draw(st.integers(2, 5)),
        compiler_version=draw(st.sampled_from([PACKED_BY, "2.2"])),
        compile_timestamp=draw(st.text(max_size=5)),
        twin=draw(st.none() | st.just(Twin(twin.VERSION, twinned))),
    )


@few
@given(files())
def test_round_trip(dfp: Dfp) -> None:
    assert Dfp.read(write(dfp)) == dfp


def test_the_compiled_part_is_written_only_with_its_size() -> None:
    dfp = read()
    assert Dfp.read(write(dfp, hardware=b"compiled")) == dfp
    with pytest.raises(ArtifactError, match="0 bytes of compiled part came, 8 belong"):
        write(dfp)


def test_a_twin_in_a_compiled_file_leaves_all_else() -> None:
    data = HEADER + mxpack.encode(fields())
    twinned = with_twin(data, small_twin())
    dfp = Dfp.read(twinned)
    assert dfp == replace(Dfp.read(data), twin=small_twin())
    assert not dfp.is_twin
    assert dfp.networks[0].twin == small_twin().networks[0]
    before, after = mxpack.decode(data, 9), mxpack.decode(twinned, 9)
    assert {key: before[key] for key in before if key != "sim_dfp"} == {
        key: after[key] for key in after if key != "sim_dfp"
    }


def test_a_file_is_a_twin_only_if_this_package_made_it_without_a_compiled_part() -> None:
    ours = {"compiler_version": PACKED_BY, "hw_dfp": b""}
    simulation = {"sim_dfp": {"enabled": True, "data": twin.encode(small_twin())}}
    assert read(**ours, **simulation).is_twin
    assert not read(**ours).is_twin
    assert not read(**simulation).is_twin
    assert not read(**(ours | simulation | {"hw_dfp": b"compiled"})).is_twin
    assert not read(**(ours | simulation | {"compiler_version": "2.1"})).is_twin


def test_a_vendors_simulation_is_no_twin() -> None:
    for data in (b"theirs", {"a": 1}, "text", [1, 2]):
        assert read(sim_dfp={"enabled": True, "data": data}).twin is None


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (small_twin("other"), "'other', which it does not hold"),
        (Twin(twin.VERSION, [TwinNetwork("net", b"", [], ["y"])]), "other ports"),
        (Twin(twin.VERSION, small_twin().networks * 2), "twice"),
        (Twin(2, []), "version 2"),
        (Twin(twin.VERSION, [TwinNetwork("net", b"", ["x"], ["y"], latency=-1.0)]), "latency"),
        (Twin(twin.VERSION, [TwinNetwork("net", b"", ["x"], ["y"], interval=float("inf"))]), "finite"),
    ],
)
def test_a_twin_that_is_none_of_the_file(broken: Twin, message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        with_twin(HEADER + mxpack.encode(fields()), broken)


def test_equal_names_are_told_apart() -> None:
    assert distinct(["a", "a", "a-2", "a"]) == ("a", "a-2", "a-2-2", "a-3")


def test_changed_twins_give_only_artifact_errors() -> None:
    def clean(data: bytes) -> bool:
        try:
            return twin.decode(data).version == twin.VERSION
        except ArtifactError:
            return True

    assert all(clean(spoiled) for spoiled in mutations(twin.encode(small_twin()), 3000))


def test_reading_files_loads_nothing_heavy() -> None:
    code = (
        "import sys, repertory.models.dfp, repertory.models.pack, repertory.models.sketch\n"
        "print(sorted({'onnx', 'onnxruntime', 'google'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
