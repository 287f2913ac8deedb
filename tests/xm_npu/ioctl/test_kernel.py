"""Real system calls: what arrives at the C library, number by number and byte by byte."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

from repertory.transports.xm_npu.ioctl.kernel import LinuxKernel

HERE = Path(__file__).parent
KEEP = "ffffffff"


def _word(number: int) -> str:
    return number.to_bytes(4, "little").hex()


def _words(*numbers: int) -> str:
    return "".join(_word(number) for number in numbers)


def test_every_call_as_the_kernel_gets_it(tmp_path: Path) -> None:
    shim, log = tmp_path / "nodes.so", tmp_path / "log"
    command = ["gcc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(shim), str(HERE / "nodes.c")]
    subprocess.run([*command, "-ldl"], check=True, timeout=60)
    done = subprocess.run(
        [sys.executable, "-m", "tests.xm_npu.ioctl.caller"],
        check=True,
        capture_output=True,
        cwd=HERE.parents[2],
        env={**os.environ, "LD_PRELOAD": str(shim), "NODES_LOG": str(log)},
        timeout=60,
    )
    assert json.loads(done.stdout) == [0x82345000, 70000, 5, 0x50000, 200, errno.EBUSY, errno.EPERM]
    lines = log.read_text().splitlines()
    mapped = next(line for line in lines if line.startswith("ioctl c0506d16"))[47:55]
    names = b"block".ljust(16, b"\0").hex() + b"npu".ljust(32, b"\0").hex() + "00" * 8
    no_name = "00" * 16 + names[32:]
    base = 0x82345000
    assert lines == [
        "open /dev/npu.0 2 1",
        f"ioctl 40206e1e {_words(0, 0xFFFFFFFF, 0, 1, 1, 1, 1, 0)}",
        "ioctl c0046e1f ",
        "open /dev/mmz_userdev 2 1",
        f"ioctl c0506d0a {_words(0, 0, 4096, 0, 0, 0x103)}{names}",
        f"ioctl c0506d14 {_words(base, 0, 4096, 0, 0, 0x103)}{no_name}",
        f"ioctl c0206e21 {_words(16, 32)}{KEEP * 4}{_words(base, base + 4096)}",
        f"ioctl c0186e22 {_words(70000, 0, 0, 0, 4000, 0)}",
        f"ioctl c0186e22 {_words(70000, 0, 0, 0, 2000, 0)}",
        f"ioctl c0046e28 {_word(1)}",
        f"ioctl c0506d16 {_words(base, 0, 4096, 0)}{mapped}{_word(0x103)}{no_name}",
        "memory bytes",
        f"ioctl 40506d0c {_words(base, 0, 0, 0, 0, 0x103)}{no_name}",
        "ioctl c0046e20 ",
        "ioctl c0046e26 ",
        "ioctl 80046e24 ",
        "close npu",
        "close mmz",
    ]


def test_what_is_not_there(tmp_path: Path) -> None:
    kernel = LinuxKernel()
    assert kernel.nodes(tmp_path / "nowhere") == []
    (tmp_path / "npu.1").touch()
    (tmp_path / "npu.0").touch()
    assert kernel.nodes(tmp_path) == ["npu.0", "npu.1"]
    assert kernel.process() == os.getpid()
