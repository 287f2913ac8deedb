"""The vendor's Python module: what libmemx sees of a script's calls, and what the script gets back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from repertory.models.codec import Shape
from repertory.models.dfp import Dfp, write
from repertory.models.errors import ConfigError
from repertory.models.formats import PortFormat
from repertory.models.hpoc import Hpoc
from repertory.models.port import Port
from repertory.models.range_convert import RangeConvert
from repertory.transports.memx.binding import CtypesLibmemx
from repertory.transports.memx.constants import Status
from repertory.transports.memx.mxa.module import ADDRESS, Mxa

from .files import Net, dfp
from .stub import Stub

SHAPE = (2, 3, 1, 4)


@pytest.fixture
def stub(tmp_path: Path) -> Stub:
    """A library whose one group has a context 0 with an input flow 0 and an output flow 0 of floats."""
    made = Stub(tmp_path / "whole")
    flows(made)
    return made


@pytest.fixture
def mxa(stub: Stub) -> Mxa:
    made = Mxa(f"memx://?library={stub.path}")
    assert made.open(0, 0, 3) == 0
    assert made.download(0, "/nowhere.dfp", 0, 0) == 0
    assert [call.split()[0] for call in stub.calls()][:2] == ["loaded", "memx_open"]
    return made


def flows(stub: Stub, form: PortFormat = PortFormat.FLOAT32, shape: Shape = SHAPE) -> None:
    stub.answer("memx_operation_get_device_count", Status.OK, 2)
    for flow in ("ifmap", "ofmap"):
        stub.answer(f"memx_get_{flow}_size", Status.OK, *shape, form)


def floats(shape: tuple[int, ...] = SHAPE) -> Any:
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


def hardware_file(path: Path) -> Path:
    """Write a file with a compiled part, as the vendor's compiler would."""
    ports = [Port(0, shape=SHAPE, layer_name=name) for name in ("x", "y")]
    content = Dfp(models=("net",), inputs=(ports[0],), outputs=(ports[1],), chips=4, hw_size=3)
    path.write_bytes(write(content, hardware=b"\x01\x00\x02"))
    return path


# -- numbers -------------------------------------------------------------------------------------------


def test_statuses_are_plain_numbers(mxa: Mxa, stub: Stub) -> None:
    stub.answer("memx_open", Status.BAD_GROUP_ID)
    status = mxa.open(1, 7, 3)
    assert type(status) is int
    assert status == 0x12000000


@pytest.mark.parametrize("wrong", [256, -1, 1 << 40, -(1 << 40)])
def test_a_number_that_does_not_fit_never_becomes_another_one(mxa: Mxa, stub: Stub, wrong: int) -> None:
    frame = floats()
    mxa.open(wrong, wrong, 3)
    mxa.close(wrong)
    mxa.reconfigure(wrong, 0)
    mxa.config_mpu_group(wrong, wrong)
    mxa.set_stream_enable(wrong, 0)
    mxa.set_stream_disable(wrong, 0)
    mxa.unlock(wrong)
    mxa.stream_ifmap(wrong, wrong, frame, 1)
    mxa.stream_ofmap(wrong, wrong, frame, 1)
    assert stub.calls() == [
        "memx_open 255 255 3",
        "memx_close 255",
        "memx_reconfigure 255 0",
        "memx_config_mpu_group 255 255",
        "memx_set_stream_enable 255 0",
        "memx_set_stream_disable 255 0",
        "memx_unlock 255",
        "memx_stream_ifmap 255 255 null 1",
        "memx_stream_ofmap 255 255 null 1",
    ]


def test_queue_sizes_that_do_not_fit_are_refused_sizes(mxa: Mxa, stub: Stub) -> None:
    for size in (1001, 1 << 32, -(1 << 40)):
        mxa.set_ifmap_queue_size(0, size)
        mxa.set_ofmap_queue_size(0, size)
    seen = [call.rpartition(" ")[2] for call in stub.calls()]
    assert seen == ["1001", "1001", "-1", "-1", "-1", "-1"]


def test_numpy_numbers_and_bools_are_numbers(mxa: Mxa, stub: Stub) -> None:
    one, seven, two = (np.dtype(kind).type(value) for kind, value in (("u1", 1), ("i8", 7), ("i4", 2)))
    mxa.config_mpu_group(one, seven)
    mxa.set_stream_disable(two, True)
    mxa.stream_ifmap(seven, one, None, two)
    assert stub.calls() == [
        "memx_config_mpu_group 1 7",
        "memx_set_stream_disable 2 1",
        "memx_stream_ifmap 7 1 null 2",
    ]


def test_what_is_no_number_is_a_type_error(mxa: Mxa, stub: Stub) -> None:
    wrong: Any = "0"
    for call in (mxa.close, mxa.lock, mxa.trylock, mxa.unlock):
        with pytest.raises(TypeError):
            call(wrong)
    with pytest.raises(TypeError):
        mxa.open(0, 0, [wrong])  # type: ignore[arg-type]
    assert stub.calls() == []


# -- contexts ------------------------------------------------------------------------------------------


def test_close_is_no_error_on_what_is_not_open(mxa: Mxa, stub: Stub) -> None:
    stub.answer("memx_close", Status.CONTEXT_NOT_OPEN)
    assert mxa.close(9) == 0
    stub.answer("memx_close", Status.BAD_MODEL_ID)
    assert mxa.close(32) == Status.BAD_MODEL_ID


def test_nothing_is_asked_about_a_context_that_is_not_open(mxa: Mxa, stub: Stub) -> None:
    def ask(model_id: int) -> list[str]:
        assert mxa.get_ifmap_size(model_id, 0) == (Status.CONTEXT_NOT_OPEN, 0, 0, 0, 0, 0)
        assert mxa.get_ofmap_size(model_id, 0) == (Status.CONTEXT_NOT_OPEN, 0, 0, 0, 0, 0)
        mxa.stream_ifmap(model_id, 0, floats(), 1)
        mxa.stream_ofmap(model_id, 0, floats(), 1)
        return [call.split()[0] for call in stub.calls()]

    assert ask(1) == ["memx_stream_ifmap", "memx_stream_ofmap"]
    mxa.open(0, 0, 3)
    mxa.close(0)
    assert mxa.get_ifmap_size(0, 0) == (0, *SHAPE, PortFormat.FLOAT32)  # it was opened twice
    mxa.close(0)
    stub.calls()
    assert ask(0) == ["memx_stream_ifmap", "memx_stream_ofmap"]
    stub.answer("memx_open", Status.BAD_GROUP_ID)
    mxa.open(2, 5, 3)
    stub.calls()
    assert ask(2) == ["memx_stream_ifmap", "memx_stream_ofmap"]


def test_a_size_call_that_fails_gives_its_status_and_zeros(mxa: Mxa, stub: Stub) -> None:
    stub.answer("memx_get_ofmap_size", Status.SIZE_UNKNOWN)
    assert mxa.get_ofmap_size(0, 3) == (Status.SIZE_UNKNOWN, 0, 0, 0, 0, 0)


def test_reconfigure_is_the_vendors_where_it_is_there(mxa: Mxa, stub: Stub) -> None:
    stub.answer("memx_reconfigure", Status.BAD_GROUP_ID)
    assert mxa.reconfigure(0, 9) == Status.BAD_GROUP_ID
    assert stub.calls() == ["memx_reconfigure 0 9"]


def test_a_context_is_reloaded_on_the_group_that_it_was_moved_to(
    mxa: Mxa, stub: Stub, tmp_path: Path
) -> None:
    mxa.reconfigure(0, 1)
    mxa.download(0, hardware_file(tmp_path / "net.dfp"), 0, 3)
    assert "memx_open 0 1 31" in stub.calls()


def test_reconfigure_closes_and_opens_where_it_is_gone(tmp_path: Path) -> None:
    stub = Stub(tmp_path, without={"memx_reconfigure"})
    flows(stub)
    mxa = Mxa(f"memx://?library={stub.path}")
    mxa.open(4, 0, 3)
    mxa.open(4, 0, 3)
    mxa.set_ifmap_queue_size(4, 9)
    mxa.set_ofmap_queue_size(4, 7)
    stub.calls()
    assert mxa.reconfigure(4, 1) == 0
    assert stub.calls() == [
        "memx_operation_get_device_count",
        *["memx_close 4"] * 2,
        *["memx_open 4 1 31"] * 2,
        "memx_set_ifmap_queue_size 4 9",
        "memx_set_ofmap_queue_size 4 7",
    ]
    assert mxa.reconfigure(4, 2) == Status.BAD_GROUP_ID
    assert mxa.reconfigure(5, 1) == Status.CONTEXT_NOT_OPEN
    assert mxa.get_ifmap_size(4, 0)[0] == 0  # it is still open
    assert "memx_close 4" not in stub.calls()


# -- downloads -----------------------------------------------------------------------------------------


def test_a_download_is_never_taken_for_the_last_one(mxa: Mxa, stub: Stub, tmp_path: Path) -> None:
    path = hardware_file(tmp_path / "net.dfp")
    for kind in (mxa.download_type_wtmem, mxa.download_type_model, mxa.download_type_wtmem_and_model):
        assert mxa.download(0, path, 1, kind) == 0
    assert stub.calls() == [
        call
        for kind in (1, 2, 3)
        for call in ("memx_open 0 0 31", "memx_close 0", f"memx_download_model 0 {path} 1 {kind}")
    ]
    mxa.download(7, str(path), 256, 3)
    assert stub.calls() == [f"memx_download_model 7 {path} 255 3"]


@pytest.mark.parametrize("kind", [0x20, 0x80, 0x83, 4, -1, 1 << 32])
def test_a_path_is_never_taken_for_a_buffer(mxa: Mxa, stub: Stub, kind: int, tmp_path: Path) -> None:
    assert mxa.download(0, hardware_file(tmp_path / "net.dfp"), 0, kind) == Status.BAD_ARGUMENT
    assert stub.calls() == []


def test_files_that_libmemx_may_crash_on_do_not_reach_it(mxa: Mxa, stub: Stub, tmp_path: Path) -> None:
    whole = hardware_file(tmp_path / "net.dfp").read_bytes()
    bad = tmp_path / "bad.dfp"
    for content in (b"", whole[:8], whole[:-1], whole[:60], dfp(Net())):  # the last is a twin
        bad.write_bytes(content)
        assert mxa.download(0, bad, 0, 3) == Status.DFP_BAD_CONTENT
    for path in (tmp_path / "none.dfp", tmp_path, "a\0b"):
        assert mxa.download(0, path, 0, 3) == Status.DFP_CANNOT_BE_OPENED
    assert stub.calls() == []


def test_files_of_other_versions_are_left_to_libmemx(mxa: Mxa, stub: Stub, tmp_path: Path) -> None:
    (tmp_path / "old.dfp").write_bytes(b"\x05" + bytes(30))
    stub.answer("memx_download_model", Status.DFP_READ_ERROR)
    assert mxa.download(0, tmp_path / "old.dfp", 0, 3) == Status.DFP_READ_ERROR
    assert stub.calls()[-1] == f"memx_download_model 0 {tmp_path}/old.dfp 0 3"


# -- frames --------------------------------------------------------------------------------------------


def test_flows_are_looked_up_once_a_download(mxa: Mxa, stub: Stub) -> None:
    frame = floats()
    for _ in range(3):
        assert mxa.stream_ifmap(0, 0, frame) == mxa.stream_ofmap(0, 0, frame) == 0
    assert sum("_size" in call for call in stub.calls()) == 2


@pytest.mark.parametrize("change", ["download", "reconfigure", "close and open"])
def test_flows_are_looked_up_anew_after_a_change(mxa: Mxa, stub: Stub, change: str, tmp_path: Path) -> None:
    frame = floats()
    assert mxa.stream_ifmap(0, 0, frame) == mxa.stream_ofmap(0, 0, frame) == 0
    flows(stub, shape=(2, 3, 1, 5))
    if change == "download":
        assert mxa.download(0, hardware_file(tmp_path / "net.dfp"), 0, 3) == 0
    elif change == "reconfigure":
        assert mxa.reconfigure(0, 1) == 0
    else:
        assert mxa.close(0) == mxa.open(0, 0, 3) == 0
    assert mxa.stream_ifmap(0, 0, frame) == mxa.stream_ofmap(0, 0, frame) == Status.BAD_ARGUMENT
    assert mxa.stream_ifmap(0, 0, floats((2, 3, 5))) == 0


@pytest.mark.parametrize(
    "array",
    [
        floats((2, 3, 3)),
        floats((2, 3, 1, 5)),
        floats().astype(np.float64),
        floats().astype(np.float16),
        floats().astype(">f4"),
        floats().view(np.int32),
        floats().tolist(),
    ],
    ids=["small", "large", "float64", "float16", "big-endian", "int32", "list"],
)
def test_an_array_that_is_no_frame_never_reaches_the_library(mxa: Mxa, stub: Stub, array: Any) -> None:
    assert mxa.stream_ifmap(0, 0, array, 1) == Status.BAD_ARGUMENT
    assert mxa.stream_ofmap(0, 0, array, 1) == Status.BAD_ARGUMENT
    assert not any("stream" in call for call in stub.calls())


def test_what_cannot_be_written_is_no_output(mxa: Mxa, stub: Stub) -> None:
    array = floats()
    array.flags.writeable = False
    assert mxa.stream_ofmap(0, 0, array, 1) == Status.BAD_ARGUMENT
    assert mxa.stream_ifmap(0, 0, array, 1) == 0
    assert [call.split()[0] for call in stub.calls() if "stream" in call] == ["memx_stream_ifmap"]


def test_none_is_the_null_pointer(mxa: Mxa, stub: Stub) -> None:
    for flow in ("ifmap", "ofmap"):
        stub.answer(f"memx_stream_{flow}", Status.NULL_POINTER)
    assert mxa.stream_ifmap(0, 0, None, 1) == mxa.stream_ofmap(0, 0, None, 1) == Status.NULL_POINTER
    seen = [call for call in stub.calls() if "stream" in call]
    assert seen == ["memx_stream_ifmap 0 0 null 1", "memx_stream_ofmap 0 0 null 1"]


def test_a_flow_without_shape_gets_the_librarys_answer(mxa: Mxa, stub: Stub) -> None:
    stub.answer("memx_get_ofmap_size", Status.SIZE_UNKNOWN)
    stub.answer("memx_stream_ofmap", Status.OUTPUT_FLOW_NOT_CONFIGURED)
    assert mxa.stream_ofmap(0, 0, floats(), 5) == Status.OUTPUT_FLOW_NOT_CONFIGURED
    assert stub.calls()[-1] == "memx_stream_ofmap 0 0 null 5"


@pytest.mark.parametrize("view", ["image", "flat", "transposed", "strided"])
def test_frames_have_the_elements_in_order_in_any_shape(mxa: Mxa, stub: Stub, view: str) -> None:
    frame = floats()
    shaped = {
        "image": frame.reshape(2, 3, 4),
        "flat": frame.reshape(-1),
        "transposed": np.asfortranarray(frame),
        "strided": np.repeat(frame, 2, axis=3)[..., ::2],
    }[view]
    assert mxa.stream_ifmap(0, 0, shaped, 1) == 0
    assert stub.calls()[-1] == f"memx_stream_ifmap 0 0 {frame.tobytes()[:8].hex()} 1"
    stub.answer("memx_stream_ofmap", Status.OK, *np.arange(16, dtype=np.float32).view(np.uint8).tolist())
    assert mxa.stream_ofmap(0, 0, shaped, 1) == 0
    assert shaped.reshape(-1)[:16].tolist() == list(range(16))


CONVERTED = [PortFormat.GBF80, PortFormat.BF16, PortFormat.GBF80_ROW]


@pytest.mark.parametrize("form", CONVERTED, ids=lambda form: form.name)
def test_frames_have_the_ports_format(mxa: Mxa, stub: Stub, form: PortFormat) -> None:
    shape = (1, 1, 1, 8)
    flows(stub, form, shape)
    port, frame, wire = Port(0, format=form, shape=shape), floats(shape), np.empty(64, np.uint8)
    port.encode(frame, wire[: port.nbytes])
    assert mxa.stream_ifmap(0, 0, frame, 1) == 0
    assert stub.calls()[-1] == f"memx_stream_ifmap 0 0 {wire.tobytes()[:8].hex()} 1"
    stub.answer("memx_stream_ofmap", Status.OK, *wire[: port.nbytes].tolist())
    out = np.empty(shape, np.float32)
    assert mxa.stream_ofmap(0, 0, out, 1) == 0
    assert out == pytest.approx(frame, rel=0.02, abs=0.02)


def test_pixels_are_bytes(mxa: Mxa, stub: Stub) -> None:
    flows(stub, PortFormat.RGB888, (1, 3, 1, 3))
    pixels = np.arange(250, 259).astype(np.uint8).reshape(1, 3, 3)
    assert mxa.stream_ifmap(0, 0, pixels, 1) == 0
    assert stub.calls()[-1] == "memx_stream_ifmap 0 0 fafbfcfdfeff0001 1"
    assert mxa.stream_ifmap(0, 0, floats((1, 3, 3)), 1) == Status.BAD_ARGUMENT


def test_no_array_stands_for_packed_colours(mxa: Mxa, stub: Stub) -> None:
    flows(stub, PortFormat.RGB565, (1, 3, 1, 3))
    stub.answer("memx_stream_ifmap", Status.NULL_POINTER)
    assert mxa.stream_ifmap(0, 0, floats((1, 3, 3)), 1) == Status.NULL_POINTER


def test_inputs_are_range_converted(mxa: Mxa, stub: Stub) -> None:
    stub.answer("memx_get_ifmap_range_convert", Status.OK, 1, 2.0, 0.5)
    frame = floats()
    port = Port(0, shape=SHAPE, range_convert=RangeConvert(2.0, 0.5))
    wire = np.empty(port.nbytes, np.uint8)
    port.encode(frame.reshape(1, 2, 3, 4), wire)
    assert mxa.stream_ifmap(0, 0, frame, 1) == 0
    assert stub.calls()[-1] == f"memx_stream_ifmap 0 0 {wire.tobytes()[:8].hex()} 1"
    assert wire.view(np.float32)[0] == np.float32((frame.flat[0] + 2.0) * 0.5)


def test_dummy_channels_are_dropped(mxa: Mxa, stub: Stub) -> None:
    flows(stub, shape=(1, 1, 1, 3))
    stub.answer("memx_get_ofmap_hpoc", Status.OK, 1, 4)
    wire = np.array([10, -1, 20, 30, -1], np.float32)
    assert Hpoc((1, 1, 1, 5), (1, 4)).channels == (1, 4)
    stub.answer("memx_stream_ofmap", Status.OK, *wire.view(np.uint8).tolist())
    out = np.empty(3, np.float32)
    assert mxa.stream_ofmap(0, 0, out, 1) == 0
    assert out.tolist() == [10, 20, 30]


def test_libraries_without_these_calls_convert_nothing(tmp_path: Path) -> None:
    stub = Stub(tmp_path, without={"memx_get_ifmap_range_convert", "memx_get_ofmap_hpoc"})
    flows(stub)
    mxa = Mxa(CtypesLibmemx(stub.path))
    mxa.open(0, 0, 3)
    assert mxa.stream_ifmap(0, 0, floats()) == mxa.stream_ofmap(0, 0, floats()) == 0


def test_enable_does_not_wait_and_disable_does(mxa: Mxa, stub: Stub) -> None:
    mxa.set_stream_enable(0, 1)
    mxa.set_stream_disable(0, 1)
    mxa.set_stream_disable(0, 0)
    assert stub.calls() == [
        "memx_set_stream_enable 0 0",
        "memx_set_stream_disable 0 1",
        "memx_set_stream_disable 0 0",
    ]


# -- where it runs -------------------------------------------------------------------------------------


def test_the_package_loads_it_for_those_who_ask(tmp_path: Path) -> None:
    code = (
        "import sys, repertory\n"
        "assert 'repertory.transports.memx.mxa.module' not in sys.modules\n"
        "from repertory import mxa\n"
        "assert 'libmemx' not in open('/proc/self/maps').read()\n"
        "print(mxa.open(1, 2, 3))\n"
        "assert not hasattr(repertory, 'mxb')"
    )
    stub = Stub(tmp_path)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    environment.pop(ADDRESS, None)
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True)
    assert done.stdout == b"0\n"
    assert stub.calls()[-1] == "memx_open 1 2 3"


def test_the_environment_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ADDRESS, "sim+memx://0?chips=2&groups=3")
    mxa = Mxa()
    assert [mxa.open(group, group, 3) for group in range(4)] == [0, 0, 0, Status.BAD_GROUP_ID]
    monkeypatch.setenv(ADDRESS, f"memx://?library={Stub(tmp_path).path}")
    assert Mxa().open(0, 200, 3) == 0  # the stub has any group


@pytest.mark.parametrize(
    ("address", "complaint"),
    [
        ("memx://?library=/nowhere/libmemx.so", "no MemryX library"),
        ("memx://?window=3", "window"),
        ("sim+memx://?color=red", "color"),
        ("cpu://", "memx:// or sim"),
        ("memx", "no device address"),
    ],
)
def test_an_address_that_leads_nowhere_is_told(address: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Mxa(address).open(0, 0, 3)


def test_a_simulator_is_never_chosen_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ADDRESS, raising=False)
    monkeypatch.setattr("repertory.transports.memx.binding.LIBRARY_NAMES", ("/nowhere/libmemx.so",))
    with pytest.raises(ConfigError, match="no MemryX library"):
        Mxa().open(0, 0, 3)


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_an_array_of_a_subclass_is_an_array(tmp_path: Path) -> None:
    path = tmp_path / "net.dfp"
    path.write_bytes(dfp(Net(outputs=1)))
    module = Mxa("sim+memx://0")
    assert module.open(0, 0, 3) == 0
    assert module.download(0, str(path), 0, module.download_type_wtmem_and_model) == 0
    assert module.set_stream_enable(0, 0) == 0
    frame = np.asmatrix(np.ones((4, 18), np.float32))
    answer = np.asmatrix(np.zeros((4, 12), np.float32))
    assert module.stream_ifmap(0, 0, frame, 1000) == 0
    assert module.stream_ofmap(0, 0, answer, 1000) == 0
    assert np.any(answer)
    assert module.set_stream_disable(0, 1) == 0
    assert module.close(0) == 0
