"""The command line: `repertory demo`, `run`, `plan`, `pack`, `inspect`, `devices`, `ping`."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

from repertory.models.errors import ConfigError, InvalidInput, NameTaken, RepertoryError

from .commands.command import Command
from .commands.demo import Demo
from .commands.devices import Devices
from .commands.inspect import Inspect
from .commands.interrupt import INTERRUPTED
from .commands.pack import Pack
from .commands.ping import Ping
from .commands.plan import Plan
from .commands.run import Run

__all__ = ["main"]

_COMMANDS: tuple[Command, ...] = (Demo(), Run(), Plan(), Pack(), Inspect(), Devices(), Ping())

_EXITS = """exit codes:
  0    done
  1    a device, a model or a file is at fault; the message says which
  2    the command line, the configuration or an input is wrong
  130  interrupted; a second Ctrl-C does not wait until all is closed"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.DEBUG if options.verbose else logging.WARNING, stream=sys.stderr)
    command: Command = options.command
    try:
        command.run(options)
    except RepertoryError as error:
        print(f"repertory {command.name}: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError | InvalidInput | NameTaken) else 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="repertory",
        description="Serve many neural networks on a few small accelerators.",
        epilog=_EXITS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"repertory {version('repertory')}")
    parser.add_argument("--verbose", action="store_true", help="log what the runtime does to stderr")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in _COMMANDS:
        entry = commands.add_parser(
            command.name,
            help=command.summary,
            description=_dedented(command.__doc__ or command.summary),
            epilog=_EXITS,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        entry.set_defaults(command=command)
        command.arguments(entry)
    return parser


def _dedented(text: str) -> str:
    return "\n".join(line.removeprefix("    ") for line in text.splitlines()).strip()


if __name__ == "__main__":
    sys.exit(main())
