"""`repertory demo`: three networks share devices and find faces."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from repertory.models.errors import ConfigError

from .command import Command, one_error, printed, progress
from .interrupt import served
from .run import statistics_text

if TYPE_CHECKING:  # it needs the extra
    from repertory.runtime.demo.show import Found

__all__ = ["Demo"]


@final
class Demo(Command):
    """Find faces in photographs with three networks (MTCNN) that share one device, or several.

    All photographs go through the cascade at once; every window is a request of its own, and the networks
    swap on the device. Without options the device is a simulated MX3, which computes the real networks'
    answers; cpu:// runs the same networks on this machine. With other simulated devices beside it (--devices
    sim+memx://0 sim+xm-npu:// sim+c7x://) each network goes to the one that suits it. Pictures are written to
    --out: each photograph with its faces, and what each device did.

    Needs the extra `demo`: pip install "repertory[demo]"
    """

    name = "demo"
    summary = "find faces with three networks on one device, or several"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--devices",
            "--device",
            nargs="+",
            default=["sim+memx://0"],
            metavar="ADDRESS",
            help="one or several (default sim+memx://0; try cpu://)",
        )
        parser.add_argument(
            "--out", type=Path, default=Path("repertory-demo"), metavar="DIR", help="for the pictures"
        )
        parser.add_argument("--json", action="store_true", help="print JSON")

    def run(self, options: argparse.Namespace) -> None:
        from repertory.runtime.demo import photos  # noqa: PLC0415  (what follows needs the extra)

        photos.require()
        from repertory.runtime.demo import placement, show  # noqa: PLC0415

        _check(options.devices, placement.SCHEMES)
        with progress("photographs", len(photos.FACES)) as step, one_error():
            found = served(self.name, show.run, options.devices, step)
        pictures = _write_pictures(found, options.out)
        printed(_facts(found), _text(found, pictures), json=options.json)


def _check(devices: list[str], schemes: tuple[str, ...]) -> None:
    for device in devices:
        if device.partition("://")[0] not in schemes:
            *others, last = (f"{scheme}://" for scheme in schemes)
            raise ConfigError(
                f"--devices {device}: the demonstration's networks are not compiled for hardware; they run"
                f" on {', '.join(others)} and {last}"
            )


def _write_pictures(found: Found, folder: Path) -> list[Path]:
    from repertory.runtime.demo import pictures  # noqa: PLC0415

    images = {name: pictures.annotate(pixels, found.faces[name]) for name, pixels in found.photos.items()}
    several = len(found.spans) > 1
    for at, (name, spans) in enumerate(found.spans.items(), 1):
        images[f"timeline-{at}" if several else "timeline"] = pictures.timeline(spans, title=name)
    written = [folder / f"{name}.png" for name in images]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, image in zip(written, images.values(), strict=True):
            image.save(path)
    except OSError as error:
        raise ConfigError(f"--out {folder}: {error.strerror or error}") from error
    return written


def _facts(found: Found) -> dict[str, Any]:
    assert found.statistics is not None, "a run ends with statistics"
    return {
        "photos": [{"name": name, "faces": found.faces[name]} for name in found.photos],
        "models": found.statistics.models,
        "groups": found.statistics.groups,
    }


def _text(found: Found, written: list[Path]) -> Iterator[str]:
    assert found.statistics is not None, "a run ends with statistics"
    for name in found.photos:
        faces = found.faces[name]
        where = "; ".join(f"at ({f.left:.0f}, {f.top:.0f}), {f.confidence:.1%} sure" for f in faces)
        yield f"{name:10} {len(faces)} face{'' if len(faces) == 1 else 's'}{': ' if where else ''}{where}"
    yield ""
    yield from statistics_text(found.statistics)
    yield ""
    yield f"pictures: {', '.join(map(str, written))}"
