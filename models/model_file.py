"""Model files and what comes with them, read whole: regular files of a bounded size, and nothing else."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final, TypeAlias, cast

from .elf_header import is_elf
from .errors import ArtifactError, ConfigError

__all__ = ["MAX_FILE", "MAX_MODULE", "MAX_SIDECAR", "Source", "contents", "is_dfp", "read_file"]

MAX_FILE: Final = 1 << 30
"""Bytes of any file."""
MAX_MODULE: Final = 468 << 20
"""Bytes of a module for a DSP: those of the staging area."""
MAX_SIDECAR: Final = 1 << 20
"""Bytes of a sidecar."""

Source: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview
"""A path, or a file's content."""

_VERSION_BYTES = 8
_VERSIONS = 1 << 16  # below which a DFP's first eight bytes lie
_HEAD = 4  # bytes that tell an ELF file
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFSOCK: "a socket",
}


def is_dfp(data: bytes) -> bool:
    """Whether a file begins as a DFP does, of whatever version."""
    return len(data) >= _VERSION_BYTES and 0 < int.from_bytes(data[:_VERSION_BYTES], "little") < _VERSIONS


def contents(source: object, what: str, *, most: int = MAX_FILE) -> bytes:
    """Return the content that a caller gave, or that of the file which it names.

    Args:
        source: a `Source`; anything else is refused.
        what: what it is to the caller, for messages: `sidecar=`.
        most: bytes that a file may have.

    Raises:
        ArtifactError: as `read_file`.
        ConfigError: it is neither a path nor bytes.
    """
    if isinstance(source, bytes):
        return source
    if isinstance(source, bytearray | memoryview):
        return bytes(cast("bytearray", source))
    if not isinstance(source, str | os.PathLike):
        raise ConfigError(f"{what}: a path or bytes are wanted, and not {type(source).__name__}")
    return read_file(Path(cast("str | os.PathLike[str]", source)), most=most)


def read_file(path: Path, *, most: int = MAX_FILE) -> bytes:
    """Read a regular file, whose size is looked at before anything is read.

    Args:
        path: it is opened without waiting for anybody.
        most: bytes that it may have; if it begins as an ELF file does, `MAX_MODULE` at most.

    Raises:
        ArtifactError: it cannot be read, is of another kind, or has more bytes; names the path.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return _read(fd, path, most)
        finally:
            os.close(fd)
    except OSError as error:
        raise ArtifactError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise ArtifactError(f"{str(path)!r} is no path: {error}") from error


def _read(fd: int, path: Path, most: int) -> bytes:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise ArtifactError(f"{path}: it is {kind}; a regular file is wanted")
    if status.st_size > most:
        raise ArtifactError(f"{path}: {status.st_size} bytes; {most} are possible")
    parts = [head] if (head := os.read(fd, _HEAD)) else []
    if is_elf(head):
        most = min(most, MAX_MODULE)
        if status.st_size > most:
            raise ArtifactError(f"{path}: an ELF file of {status.st_size} bytes; a DSP takes {most}")
    left = most - len(head)
    while left > 0 and (part := os.read(fd, left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
