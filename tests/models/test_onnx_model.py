from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from repertory.models import extras
from repertory.models.errors import ArtifactError, ConfigError, DeviceError, RepertoryError
from repertory.models.onnx_model import UNRANKED, OnnxExecutor, Stopped, read_specs

from .graphs import endless, model, node, tensor
from .mutate import mutations

PATIENCE = 60.0


def plain(data: bytes, *inputs: np.ndarray) -> list[Any]:
    """What onnxruntime answers without any of our code."""
    runtime: Any = onnxruntime
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_inputs()]
    return list(session.run(None, dict(zip(names, inputs, strict=True))))


def images(batch: int, size: int) -> np.ndarray:
    return np.random.default_rng(3).random((batch, size, size, 3), np.float32)


def test_specs_of_real_models(mtcnn: dict[str, bytes]) -> None:
    pnet = read_specs(mtcnn["pnet"], "pnet")
    assert pnet.name == "pnet"
    assert [str(spec) for spec in pnet.inputs] == ["float32[N, M1, M2, 3]"]
    assert [(spec.name, str(spec)) for spec in pnet.outputs] == [
        ("conv2d_4", "float32[N, M3, M4, 4]"),
        ("softmax", "float32[N, M5, M6, 2]"),
    ]
    onet = read_specs(mtcnn["onet"], "onet")
    assert [spec.name for spec in onet.outputs] == ["dense_5", "dense_6", "softmax_2"]


def test_specs_tell_no_axes_from_no_shape_and_name_open_extents() -> None:
    data = model(
        [node("Identity", ["a"], ["b"]), node("NonZero", ["c"], ["d"]), node("Reshape", ["c", "s"], ["e"])],
        [tensor("a", []), tensor("c", ["T", None]), tensor("s", [None], TensorProto.INT64)],
        [tensor("b", []), tensor("d", None, TensorProto.INT64), tensor("e", None)],
    )
    network = read_specs(data, "net")
    assert [spec.shape for spec in network.inputs] == [(), ("T", "?"), ("?",)]
    assert [spec.shape for spec in network.outputs] == [(), UNRANKED, UNRANKED]
    assert [spec.fixed for spec in network.outputs] == [True, False, False]
    scalar, matrix = np.array(2.5, np.float32), np.ones((2, 3), np.float32)
    same, places, flat = OnnxExecutor(data).run([scalar, matrix, np.array([-1], np.int64)])
    assert (same.shape, places.shape, flat.shape) == ((), (2, 6), (6,))


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE", "FLOAT16", "BOOL", "INT8", "UINT8", "INT64", "UINT64"])
def test_every_dtype_of_numbers_is_served(kind: str) -> None:
    number = TensorProto.DataType.Value(kind)
    data = model([node("Identity", ["x"], ["y"])], [tensor("x", [2], number)], [tensor("y", [2], number)])
    executor = OnnxExecutor(data)
    array = np.array([0, 1], executor.network.inputs[0].dtype)
    (same,) = executor.run([array])
    assert same.dtype == array.dtype == helper.tensor_dtype_to_np_dtype(number)
    assert np.array_equal(same, array)


def test_tensors_of_strings_and_sequences_are_refused() -> None:
    text = model(
        [node("Identity", ["x"], ["y"])],
        [tensor("x", [1], TensorProto.STRING)],
        [tensor("y", [1], TensorProto.STRING)],
    )
    with pytest.raises(ArtifactError, match=r"net: 'x' is a tensor\(string\)"):
        read_specs(text, "net")
    sequence: Any = helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)
    several = model([node("SequenceConstruct", ["x"], ["y"])], [tensor("x", [1])], [sequence])
    with pytest.raises(ArtifactError, match=r"'y' is a seq\(tensor\(float\)\)"):
        OnnxExecutor(several)


def test_an_input_without_a_shape_is_refused() -> None:
    with pytest.raises(ArtifactError, match="input 'x' has no shape"):
        read_specs(model([node("Identity", ["x"], ["y"])], [tensor("x", None)], [tensor("y", None)]), "net")


@pytest.mark.parametrize("data", [b"", b"not a model", bytes(64)])
def test_foreign_files(data: bytes) -> None:
    with pytest.raises(ArtifactError, match="net: onnxruntime does not load it"):
        read_specs(data, "net")


def test_truncated_and_changed_files_give_only_artifact_errors(mtcnn: dict[str, bytes]) -> None:
    for data in mutations(mtcnn["pnet"], 60):
        try:
            read_specs(data, "net")
        except ArtifactError as error:
            assert str(error).startswith("net: ")  # noqa: PT017


@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize(("name", "size"), [("pnet", 40), ("rnet", 24), ("onet", 48)])
def test_answers_are_those_of_onnxruntime_bit_for_bit(
    mtcnn: dict[str, bytes], name: str, size: int, batch: int
) -> None:
    array = images(batch, size)
    wanted = plain(mtcnn[name], array)
    executor = OnnxExecutor(mtcnn[name], name=name)
    targets = [np.empty_like(output) for output in wanted]
    for outputs in (
        executor.run([array]),
        executor.run([array], targets),
        executor.run([array], [None] * len(wanted)),
    ):
        assert all(np.array_equal(have, want) for have, want in zip(outputs, wanted, strict=True))
        assert all(have.dtype == want.dtype for have, want in zip(outputs, wanted, strict=True))
    assert all(given is made for given, made in zip(targets, executor.run([array], targets), strict=True))


@pytest.mark.parametrize("size", [1, 512])
def test_outputs_of_every_size_are_computed_into_given_memory(size: int) -> None:
    data = model(
        [node("Neg", ["x"], ["y"]), node("ReduceMax", ["x"], ["m"], keepdims=0)],
        [tensor("x", [size, size])],
        [tensor("y", [size, size]), tensor("m", [])],
    )
    executor = OnnxExecutor(data)
    array = np.random.default_rng(1).random((size, size), np.float32)
    straight = np.zeros((size, size), np.float32)
    turned = np.zeros((size, size), np.float32).T
    for target in (straight, turned, straight[::-1, ::-1]):
        made, largest = executor.run([array], [target, None])
        assert made is target
        assert np.array_equal(target, -array)
        assert largest.shape == ()
        assert largest == array.max()


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.permutations(range(3)), st.lists(st.sampled_from([1, -1, 2]), min_size=3, max_size=3))
def test_inputs_may_lie_in_any_order(axes: list[int], steps: list[int]) -> None:
    array = np.arange(8 * 8 * 8, dtype=np.float32).reshape(8, 8, 8).transpose(axes)
    array = array[:: steps[0], :: steps[1], :: steps[2]]
    (same,) = NEGATE.run([array])
    assert np.array_equal(same, -array)


NEGATE = OnnxExecutor(
    model([node("Neg", ["x"], ["y"])], [tensor("x", ["A", "B", "C"])], [tensor("y", ["A", "B", "C"])])
)


def test_misaligned_inputs_are_copied() -> None:
    array = np.zeros(4 * 8 + 1, np.uint8)[1:].view(np.float32).reshape(2, 2, 2)
    assert not array.flags.aligned
    (same,) = NEGATE.run([array])
    assert np.array_equal(same, -array)


def test_new_outputs_belong_to_the_caller() -> None:
    array = np.ones((2, 2, 2), np.float32)
    (first,) = NEGATE.run([array])
    (second,) = NEGATE.run([array * 3])
    assert first.flags.writeable
    assert not np.shares_memory(first, second)
    assert first[0, 0, 0] == -1


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        ([np.ones((2, 2, 2))], None),
        ([np.ones((2, 2), np.float32)], None),
        ([], None),
        ([np.ones((2, 2, 2), np.float32)] * 2, None),
        ([np.ones((2, 2, 2), np.float32)], [np.ones((2, 2, 3), np.float32)]),
        ([np.ones((2, 2, 2), np.float32)], [np.ones((2, 2, 2))]),
        ([np.ones((64, 64, 64), np.float32)], [np.ones((64, 64, 65), np.float32)]),
        ([np.ones((64, 64, 64), np.float32)], [None, None]),
    ],
)
def test_a_refused_run_is_an_error_of_the_device(inputs: Any, outputs: Any) -> None:
    with pytest.raises(DeviceError) as caught:
        NEGATE.run(inputs, outputs)
    assert (caught.value.family, caught.value.call) == ("cpu", "run")
    assert not NEGATE.terminate()


def busy(thread: threading.Thread, *, seconds: float) -> bool:
    """Wait until a thread has computed for this long: its run has begun and does not end."""
    assert thread.ident is not None
    clock = time.pthread_getcpuclockid(thread.ident)
    patience = threading.Event()
    return any(time.clock_gettime(clock) > seconds or patience.wait(0.002) for _ in range(10_000))


@pytest.mark.parametrize("threads", [1, 2])
def test_terminate_stops_a_run_for_real(threads: int) -> None:
    executor = OnnxExecutor(endless(), name="endless", threads=threads)
    array = np.zeros((32, 32), np.float32)
    caught: list[Exception] = []

    def run() -> None:
        try:
            executor.run([np.array(2**62), array])
        except RepertoryError as error:
            caught.append(error)

    assert not executor.terminate()
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert busy(thread, seconds=0.05)
    assert executor.terminate()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert [type(error) for error in caught] == [Stopped]
    assert not executor.terminate()
    assert np.array_equal(executor.run([np.array(3), array])[0], array)


def test_terminate_between_runs_stops_nothing() -> None:
    executor = OnnxExecutor(endless())
    assert not executor.terminate()
    (same,) = executor.run([np.array(1), np.eye(32, dtype=np.float32)])
    assert np.array_equal(same, np.eye(32))


def test_a_missing_package_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(extras, "import_module", missing)
    for load in (extras.load_onnx, extras.load_onnxruntime):
        load.cache_clear()
        with pytest.raises(ConfigError, match=r'pip install "repertory\[onnx\]"'):
            load()
    with pytest.raises(ConfigError, match="onnxruntime is missing"):
        read_specs(b"", "net")


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str], mtcnn: dict[str, bytes]) -> None:
    executor = OnnxExecutor(mtcnn["rnet"])
    with pytest.raises(DeviceError):
        executor.run([images(1, 23)])
    with pytest.raises(ArtifactError):
        OnnxExecutor(mtcnn["rnet"][:1000])
    assert capfd.readouterr() == ("", "")
