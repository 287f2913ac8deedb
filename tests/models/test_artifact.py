from __future__ import annotations

from pathlib import Path

import pytest

from repertory.models.errors import ArtifactError
from repertory.models.program import Artifact

ELF = b"\x7fELF and more"


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """Write a module with a sidecar beside it."""
    path = tmp_path / "lib0.out"
    path.write_bytes(ELF)
    path.with_name("lib0.out.json").write_bytes(b"beside")
    return path


def test_the_sidecar_beside_a_module_is_found(module: Path) -> None:
    for source in (module, str(module)):
        assert Artifact.read(source) == Artifact("lib0.out", ELF, sidecar=b"beside")


def test_a_given_sidecar_counts_before_it(module: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_bytes(b"other")
    for given in (other, str(other), b"other"):
        assert Artifact.read(module, sidecar=given).sidecar == b"other"
        assert Artifact.read(ELF, sidecar=given).sidecar == b"other"


def test_a_sidecar_is_called_by_where_it_came_from(module: Path, tmp_path: Path) -> None:
    beside = tmp_path / "lib0.out.json"
    assert Artifact.read(module).sidecar_name == str(beside)
    assert Artifact.read(ELF, sidecar=beside).sidecar_name == str(beside)
    assert Artifact.read(module, sidecar=b"other").sidecar_name == "sidecar="


def test_without_one_there_is_none(tmp_path: Path) -> None:
    path = tmp_path / "lib0.out"
    path.write_bytes(ELF)
    assert Artifact.read(path).sidecar is None
    assert Artifact.read(ELF).sidecar is None


def test_json_beside_other_files_is_somebody_elses(module: Path) -> None:
    module.write_bytes(b"\x06 a DFP")
    assert Artifact.read(module).sidecar is None


def test_a_sidecar_that_cannot_be_read_is_no_missing_one(module: Path, tmp_path: Path) -> None:
    beside = module.with_name("lib0.out.json")
    beside.unlink()
    beside.mkdir()
    with pytest.raises(ArtifactError, match=r"lib0\.out\.json: it is a directory"):
        Artifact.read(module)
    with pytest.raises(ArtifactError, match=r"none\.json: No such file"):
        Artifact.read(module, sidecar=tmp_path / "none.json")
