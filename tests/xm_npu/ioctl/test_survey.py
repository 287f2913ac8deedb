"""What `repertory devices` tells of NPUs, and that nothing is opened for it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from repertory.runtime.cli import main
from repertory.runtime.commands import devices
from repertory.transports.address import Address
from repertory.transports.virtual import VirtualWorld
from repertory.transports.xm_npu.hardware import XmNpuOptions
from repertory.transports.xm_npu.ioctl.kernel import LinuxKernel
from repertory.transports.xm_npu.survey import BoardFacts, WayFacts, survey

from .scripted import ScriptedKernel

LIBRARY = "libxmedia_cl.so"


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    (tmp_path / "dev").mkdir()
    (tmp_path / "lib").mkdir()
    for name in ("npu.0", "mmz_userdev", "npu"):
        (tmp_path / "dev" / name).touch()
    (tmp_path / "lib" / LIBRARY).write_bytes(b"\x7fELF\x01 a library")
    (tmp_path / "status").write_text("Name:\tpython\nCapEff:\t0000000000020000\n")
    return tmp_path / "dev"


def _survey(dev: Path, *, bits: int = 32, usable: bool = True) -> BoardFacts:
    kernel = LinuxKernel()
    kernel.bits = bits
    root = dev.parent
    return survey(
        str(dev),
        lib=str(root / "lib"),
        kernel=kernel,
        may_use=lambda node: usable or node.name != "mmz_userdev",
        status=str(root / "status"),
    )


def _reasons(facts: BoardFacts) -> list[str]:
    return [way.reason or "" for way in facts.ways]


def test_an_npu_that_can_be_used(dev: Path) -> None:
    node = f"{dev}/npu.0"
    assert _survey(dev) == BoardFacts(
        ways=(
            WayFacts(f"xm-npu://{node}", node, "cl", None),
            WayFacts(f"xm-npu://{node}?via=ioctl", node, "ioctl", None),
        ),
        memory=f"{dev}/mmz_userdev",
        library=f"{dev.parent}/lib/{LIBRARY}",
        reason=None,
    )


def test_addresses_are_such_as_open_it(dev: Path) -> None:
    for way in _survey(dev).ways:
        address = Address.parse(way.address)
        assert address.target == way.node
        assert address.options(XmNpuOptions).via == way.via


async def test_the_usual_node_has_the_short_address() -> None:
    async with VirtualWorld() as world:
        kernel = ScriptedKernel(world)
        facts = survey(kernel=kernel)
        assert [way.address for way in facts.ways] == ["xm-npu://0", "xm-npu://0?via=ioctl"]
        assert kernel.calls == []


def test_a_python_of_64_bits(dev: Path) -> None:
    by_library, by_nodes = _reasons(_survey(dev, bits=64))
    assert "has 32 bits, this Python 64" in by_library
    assert "needs a 32-bit Python" in by_nodes


def test_what_is_not_there(dev: Path) -> None:
    (dev / "mmz_userdev").unlink()
    for reason in _reasons(_survey(dev)):
        assert "mmz_userdev: not there" in reason
        assert "insmod xm_npu.ko" in reason
    (dev.parent / "lib" / LIBRARY).write_text("no library")
    assert "no library" in _reasons(_survey(dev))[0]
    (dev.parent / "lib" / LIBRARY).unlink()
    assert "lib=" in _reasons(_survey(dev))[0]
    (dev / "npu.0").unlink()
    facts = _survey(dev)
    assert facts.ways == ()
    assert "./load xm7206v11a -i" in (facts.reason or "")


def test_who_may_not(dev: Path) -> None:
    assert all("no permission" in reason for reason in _reasons(_survey(dev, usable=False)))
    (dev.parent / "status").write_text("CapEff:\t000001ffffdfffff\n")
    assert _reasons(_survey(dev)) == [""] * 2
    (dev.parent / "status").write_text("CapEff:\t000001fffffdffff\n")
    assert all("CAP_SYS_RAWIO" in reason for reason in _reasons(_survey(dev)))


def _no_groups(_library: str | None) -> dict[str, Any]:
    return {"groups": []}


def test_the_command(dev: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(devices, "survey_npus", partial(_survey, dev))
    monkeypatch.setattr(devices, "survey", _no_groups)  # a process of its own asks for them
    main(["devices", "--json"])
    told = json.loads(capsys.readouterr().out)["xm-npu"]
    assert told["available"] is True
    assert told["ways"][0]["address"] == f"xm-npu://{dev}/npu.0"
    main(["devices"])
    assert f"  xm-npu://{dev}/npu.0?via=ioctl: ready\n" in capsys.readouterr().out
    (dev / "npu.0").unlink()
    main(["devices"])
    assert f"xm-npu: none: {dev}/npu.0 is not there" in capsys.readouterr().out
