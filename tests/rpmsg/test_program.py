"""What a DSP, real or simulated, takes as a model."""

from __future__ import annotations

import pytest

from repertory.models.dynmod import Dynmod
from repertory.models.dynmod_io import DynmodIo
from repertory.models.errors import ArtifactError, UnknownModel
from repertory.models.pack_c7x import attach_twin_c7x, pack_c7x
from repertory.models.program import Artifact, Program
from repertory.models.sidecar import read_sidecar
from repertory.transports.rpmsg.program import Loadable, loadable, prepare_dynmod
from tests.models.graphs import model, node, tensor
from tests.models.modules import SIDECAR, linked, module, patched

NETWORK = read_sidecar(SIDECAR)
OTHER_MACHINE = b"\x3e\0"


def graph(*, inputs: int = 1) -> bytes:
    """Compute what `SIDECAR` describes."""
    names = [f"x{n}" for n in range(inputs)]
    nodes = [
        node("Constant", [], ["s"], value_ints=[16]),
        node("Sum", names, ["n"]),
        node("Reshape", ["n", "s"], ["y"]),
    ]
    return model(nodes, [tensor(name, [4, 4]) for name in names], [tensor("y", [16])])


COMPILED = module()
TWIN = attach_twin_c7x(COMPILED, graph(), sidecar=SIDECAR, latency=0.5)
PACKED = pack_c7x("net", graph())


def artifact(
    data: bytes, *, sidecar: bytes | None = None, twin: bytes | None = None, network: str | None = None
) -> Artifact:
    return Artifact("lib0.out", data, network, twin, sidecar)


def test_a_compiled_module_with_its_sidecar() -> None:
    program = prepare_dynmod(artifact(COMPILED, sidecar=SIDECAR), simulated=False)
    assert (program.name, program.networks) == ("net", (NETWORK,))
    assert (program.footprint, program.scratch) == (len(COMPILED), 64 + 64)
    image = loadable(program)
    assert (image.data, image.network) == (COMPILED, NETWORK)
    assert image.io == DynmodIo(inputs=1, outputs=1, input_bytes=64, output_bytes=64, exact=True)


def test_scratch_counts_each_tensor_in_whole_lines() -> None:
    sidecar = SIDECAR.replace(b"[4, 4]", b"[17]").replace(b"[16]", b"[1]")
    program = prepare_dynmod(artifact(module(io=None), sidecar=sidecar), simulated=False)
    assert program.scratch == 128 + 64


def test_a_module_for_wire_version_2_needs_no_record() -> None:
    image = loadable(prepare_dynmod(artifact(module(io=None), sidecar=SIDECAR), simulated=False))
    assert image.io is None


def test_nothing_that_describes_the_tensors_is_an_error_that_shows_what_to_write() -> None:
    with pytest.raises(ArtifactError) as caught:
        prepare_dynmod(artifact(linked()), simulated=False)
    text = str(caught.value)
    assert "give sidecar=, or put a file lib0.out.json beside it" in text
    example = text[text.index("{") :]
    assert ("input_1" in example, "input_2" in example, "output_0" in example) == (True, False, True)
    filled = example.replace("0\n", "4\n").encode()
    (described,) = prepare_dynmod(artifact(module(io=None), sidecar=filled), simulated=False).networks
    assert described.name == "lib0"


def test_a_sidecar_that_contradicts_the_module() -> None:
    with pytest.raises(ArtifactError, match=r"lib0\.out: sidecar=: net: 1 inputs are described, the module"):
        prepare_dynmod(artifact(linked(), sidecar=SIDECAR), simulated=False)
    with pytest.raises(ArtifactError, match=r"lib0\.out: sidecar=: the sidecar cannot be read"):
        prepare_dynmod(artifact(COMPILED, sidecar=b"{"), simulated=False)


@pytest.mark.parametrize("simulated", [True, False])
def test_what_is_wrong_with_a_sidecar_names_its_file(simulated: bool) -> None:
    for data, sidecar in ((COMPILED, b"{"), (linked(), SIDECAR)):
        given = Artifact("lib0.out", data, None, graph(), sidecar, sidecar_name="/m/lib0.out.json")
        with pytest.raises(ArtifactError, match=r"^lib0\.out: /m/lib0\.out\.json: (the side|net: 1 in)"):
            prepare_dynmod(given, simulated=simulated)


def test_a_twin_that_does_not_fit_names_the_module() -> None:
    with pytest.raises(ArtifactError, match=r"^lib0\.out: "):
        prepare_dynmod(artifact(COMPILED, sidecar=SIDECAR, twin=b"no graph"), simulated=True)


def test_a_twin_on_real_hardware() -> None:
    for sidecar in (None, SIDECAR):
        with pytest.raises(ArtifactError, match=r"simulation twin: .*; only sim\+c7x:// runs it"):
            prepare_dynmod(artifact(PACKED, sidecar=sidecar, twin=graph()), simulated=False)


def test_a_compiled_module_with_a_twin_runs_on_hardware_and_in_simulation() -> None:
    for simulated in (False, True):
        program = prepare_dynmod(artifact(TWIN), simulated=simulated)
        assert loadable(program).data == TWIN
        assert program.networks == (NETWORK,)


def test_a_packed_file_runs_in_simulation() -> None:
    image = loadable(prepare_dynmod(artifact(PACKED), simulated=True))
    assert image.data == PACKED
    assert [spec.name for spec in image.network.inputs] == ["x0"]


def test_a_simulator_needs_a_twin() -> None:
    with pytest.raises(ArtifactError, match=r"lib0\.out carries no twin: a simulator needs twin="):
        prepare_dynmod(artifact(COMPILED, sidecar=SIDECAR), simulated=True)


def test_a_twin_that_comes_along_is_put_into_the_module() -> None:
    for data in (COMPILED, PACKED, TWIN):
        image = loadable(prepare_dynmod(artifact(data, sidecar=SIDECAR, twin=graph()), simulated=True))
        assert image.network == NETWORK
        found = Dynmod.read(image.data).twin
        assert found is not None
        assert (found.networks[0].name, found.networks[0].onnx) == ("net", graph())


@pytest.mark.parametrize("sidecar", [None, SIDECAR])
def test_a_twin_given_counts_before_the_one_inside(sidecar: bytes | None) -> None:
    flat = model([node("Flatten", ["a"], ["y"], axis=0)], [tensor("a", [4, 4])], [tensor("y", [1, 16])])
    with pytest.raises(ArtifactError, match=r"'y' is float32\[1, 16\]"):
        prepare_dynmod(artifact(TWIN, sidecar=sidecar, twin=flat), simulated=True)
    other = graph() + b"\x82\x01\0"  # and a field that nobody knows
    image = loadable(prepare_dynmod(artifact(TWIN, sidecar=sidecar, twin=other), simulated=True))
    found = Dynmod.read(image.data).twin
    assert found is not None
    assert found.networks[0].onnx == other


def test_a_twin_without_a_sidecar_describes_itself() -> None:
    program = prepare_dynmod(artifact(COMPILED, twin=graph()), simulated=True)
    assert program.name == "lib0"
    assert [spec.name for spec in program.networks[0].inputs] == ["x0"]


def test_a_twin_that_does_not_fit() -> None:
    with pytest.raises(ArtifactError, match="it has 2 tensors where the file has 1"):
        prepare_dynmod(artifact(COMPILED, sidecar=SIDECAR, twin=graph(inputs=2)), simulated=True)


def test_a_sidecar_renames_the_tensors_of_a_twin_that_is_inside() -> None:
    renamed = SIDECAR.replace(b'"net"', b'"mine"').replace(b'"x"', b'"image"')
    image = loadable(prepare_dynmod(artifact(TWIN, sidecar=renamed), simulated=True))
    assert image.network == read_sidecar(renamed)
    found = Dynmod.read(image.data)
    assert found.twin is not None
    (held,) = found.twin.networks
    assert (held.name, held.inputs, held.latency) == ("mine", ["x0"], 0.5)
    assert found.network == image.network


def test_the_network_by_its_name() -> None:
    assert prepare_dynmod(artifact(PACKED, network="net"), simulated=True).name == "net"
    with pytest.raises(UnknownModel, match=r"lib0\.out holds 'net', not 'other'"):
        prepare_dynmod(artifact(PACKED, network="other"), simulated=True)


def test_keys_tell_files_and_descriptions_apart() -> None:
    def key(data: bytes, sidecar: bytes = SIDECAR) -> str:
        return prepare_dynmod(artifact(data, sidecar=sidecar), simulated=False).key

    assert key(COMPILED) == key(COMPILED, SIDECAR.replace(b" ", b""))
    others = {key(COMPILED), key(module(io=None)), key(COMPILED, SIDECAR.replace(b"[16]", b"[2, 8]"))}
    assert len(others) == 3


@pytest.mark.parametrize("simulated", [False, True])
def test_what_is_no_module_is_named(simulated: bool) -> None:
    with pytest.raises(ArtifactError, match=r"lib0\.out: no ELF file"):
        prepare_dynmod(artifact(b"junk", twin=graph(), sidecar=SIDECAR), simulated=simulated)


@pytest.mark.parametrize("simulated", [False, True])
def test_another_machine_must_be_allowed(simulated: bool) -> None:
    data = patched(TWIN, 18, OTHER_MACHINE)
    for given in (artifact(data), artifact(data, twin=graph(), sidecar=SIDECAR)):
        with pytest.raises(ArtifactError, match="any_machine"):
            prepare_dynmod(given, simulated=simulated)
        assert prepare_dynmod(given, simulated=simulated, any_machine=True).networks == (NETWORK,)


def test_a_program_of_another_family() -> None:
    foreign = Program("key", "net", (NETWORK,), 0, 0, image=b"")
    with pytest.raises(ArtifactError, match="prepared for another family than c7x"):
        loadable(foreign)
    assert isinstance(prepare_dynmod(artifact(PACKED), simulated=True).image, Loadable)
