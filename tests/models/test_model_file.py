"""Which files are read, and what a caller may give in their place."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from repertory.models.errors import ArtifactError, ConfigError
from repertory.models.model_file import MAX_FILE, MAX_MODULE, MAX_SIDECAR, contents, is_dfp, read_file
from repertory.models.program import Artifact

ELF = b"\x7fELF and more"
DFP = (6).to_bytes(8, "little") + b"\x01 and more"


def sparse(path: Path, size: int, head: bytes = b"") -> Path:
    """Write a file of holes."""
    with path.open("wb") as file:
        file.write(head)
        file.truncate(size)
    return path


@pytest.mark.parametrize("head", [b"", b"a", b"\x7fEL", ELF, b"abcde" * 1000])
def test_a_file_is_read_whole(head: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(head)
    assert read_file(path) == head
    assert contents(str(path), "a model") == head


def test_what_is_no_regular_file_is_not_read_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ArtifactError, match=r"pipe: it is a pipe; a regular file is wanted"):
        Artifact.read(tmp_path / "pipe")
    with pytest.raises(ArtifactError, match=r"/dev/zero: it is a character device"):
        Artifact.read("/dev/zero")
    with pytest.raises(ArtifactError, match=r"it is a directory"):
        Artifact.read(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        with pytest.raises(ArtifactError, match=rf"{tmp_path}/s: No such device"):
            Artifact.read(tmp_path / "s")


def test_nothing_stays_open(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for path in (tmp_path, Path("/dev/zero"), sparse(tmp_path / "huge", MAX_FILE + 1)):
        with pytest.raises(ArtifactError):
            read_file(path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_sizes_are_looked_at_first(tmp_path: Path) -> None:
    huge = sparse(tmp_path / "huge", 3 << 30)
    with pytest.raises(ArtifactError, match=f"huge: {3 << 30} bytes; {MAX_FILE} are possible"):
        Artifact.read(huge)
    module = sparse(tmp_path / "lib0.out", MAX_MODULE + 1, ELF)
    with pytest.raises(ArtifactError, match=f"ELF file of {MAX_MODULE + 1} bytes; a DSP takes"):
        Artifact.read(module)
    module.write_bytes(ELF)
    sidecar = sparse(tmp_path / "lib0.out.json", MAX_SIDECAR + 1)
    for given in (None, sidecar):
        with pytest.raises(ArtifactError, match=r"lib0\.out\.json: 1048577 bytes; 1048576 are possible"):
            Artifact.read(module, sidecar=given)
    sparse(sidecar, MAX_SIDECAR)
    assert len(Artifact.read(module).sidecar or b"") == MAX_SIDECAR


def test_a_file_of_no_size_is_read_to_its_end_and_not_beyond() -> None:
    """Those of /proc tell no size."""
    assert read_file(Path("/proc/self/stat")).startswith(str(os.getpid()).encode())
    assert len(read_file(Path("/proc/self/stat"), most=5)) == 5


@pytest.mark.parametrize("path", ["a\0b", Path("a\0b")])
def test_what_is_no_path(path: str | Path) -> None:
    with pytest.raises(ArtifactError, match="is no path: embedded null"):
        Artifact.read(path)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_of_all_kinds_are_taken(kind: type[bytes | bytearray | memoryview]) -> None:
    read = Artifact.read(kind(ELF), name="net", twin=kind(b"graph"), sidecar=kind(b"{}"))
    assert read == Artifact("net", ELF, twin=b"graph", sidecar=b"{}")
    assert all(type(part) is bytes for part in (read.data, read.twin, read.sidecar))


def test_what_is_neither_is_told_by_its_type() -> None:
    with pytest.raises(ConfigError, match="a model: a path or bytes are wanted, and not int"):
        Artifact.read(5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"a model: .* not NoneType"):
        Artifact.read(None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"sidecar=: .* not int"):
        Artifact.read(ELF, sidecar=5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"twin=: .* not dict"):
        Artifact.read(ELF, twin={})  # type: ignore[arg-type]


def test_a_twin_that_is_a_compiled_model() -> None:
    with pytest.raises(ArtifactError, match=r"twin=: an ONNX file is wanted, and this is a module"):
        Artifact.read(ELF, twin=ELF)
    with pytest.raises(ArtifactError, match=r"twin=: an ONNX file is wanted, and this is a DFP"):
        Artifact.read(DFP, twin=DFP)


@pytest.mark.parametrize(
    ("data", "is_one"),
    [(DFP, True), ((5).to_bytes(8, "little"), True), (b"", False), (bytes(64), False), (b"\x06", False)],
)
def test_what_begins_as_a_dfp(data: bytes, is_one: bool) -> None:
    assert is_dfp(data) is is_one
