"""What `structs.c` prints: every message as a C compiler lays it out."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

__all__ = ["messages"]

SOURCE = Path(__file__).with_name("structs.c")
FLAGS = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-sign-compare")


@cache
def messages() -> dict[str, bytes]:
    """Return the messages by their names."""
    with TemporaryDirectory() as folder:
        program = Path(folder) / "structs"
        subprocess.run(["cc", *FLAGS, SOURCE, "-o", program], check=True)
        printed = subprocess.run([program], check=True, capture_output=True, text=True, timeout=20).stdout
    lines = [line.split() for line in printed.splitlines()]
    assert len({name for name, _ in lines}) == len(lines)
    return {name: bytes.fromhex(digits) for name, digits in lines}
