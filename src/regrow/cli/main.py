"""Parse first, import later: help must appear at once."""

from __future__ import annotations

import argparse
import errno
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TextIO

from regrow import __version__
from regrow.__main__ import INTERRUPTED
from regrow.amx import keep_off_traps
from regrow.cli.configured import separate
from regrow.cli.width import columns, fitted
from regrow.errors import RegrowError, RegrowWarning, unknown

UNREAD = 141
# torch and its oneDNN have no kind of error of their own for what they cannot allocate on a CPU.
_NO_MEMORY = ("can't allocate memory", "could not create a primitive")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
COMMANDS: dict[str, str] = {
    "demo": "dense and sparse side by side on handwritten digits, in two minutes",
    "train": "train a network; the same command again resumes",
    "evaluate": "test a finished or running run",
    "data": "list, fetch and check data sets",
    "plan": "show which layers are sparse, how dense, how much work",
    "methods": "list the methods",
    "sweep": "run a grid of configurations times seeds",
    "reproduce": "re-run a table or figure of the paper",
    "bench": "measure sparse execution against dense torch",
    "race": "dense against sparse settings, in alternating slices",
    "report": "write a run's report as one HTML file",
    "export": "write a run's network to a file: sparse safetensors, ONNX, torch.export",
    "infer": "answer a data set with an exported network; accuracy and times",
    "doctor": "show what this machine offers and what is missing",
}


CONFIGURED = ("train", "plan", "sweep", "race")


def build_parser() -> argparse.ArgumentParser:
    """The whole command line, without importing torch."""
    parser = argparse.ArgumentParser(
        prog="regrow", description="Train neural networks that are sparse from the first step to the last."
    )
    parser.add_argument("--version", action="version", version=f"regrow {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        module = import_module(f"regrow.cli.{name}")
        command = commands.add_parser(
            name,
            help=summary,
            description=fitted(module.__doc__ or "", columns()),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


def options_of(parser: argparse.ArgumentParser) -> dict[str, list[str]]:
    """Every command's own options."""
    return {
        name: [option for action in command._actions for option in action.option_strings]
        for name, command in _commands(parser).items()
    }


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return commands.choices


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Options of a command, with the overrides of a configuration where it takes one."""
    if arguments and not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
        if arguments[0] in ("help", "version"):
            return parse([f"--{arguments[0]}"] if len(arguments) == 1 else [*arguments[1:], "--help"])
        raise unknown("command", arguments[0], COMMANDS)
    parser = build_parser()
    overrides: dict[str, str] = {}
    if arguments and arguments[0] in CONFIGURED:
        arguments, overrides = separate(arguments, options_of(parser)[arguments[0]])
    options, unknown_ones = parser.parse_known_args(arguments)
    if unknown_ones:  # argparse itself would show the usage of the whole program
        _commands(parser)[options.command].error(f"unrecognized arguments: {' '.join(unknown_ones)}")
    options.overrides = overrides
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; errors of the user's making are one line, not a traceback."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    command = arguments[0] if arguments else ""
    try:
        with _own_warnings(command):
            options = parse(arguments)
            keep_off_traps()
            status = options.run(options)
            sys.stdout.flush()
            return status
    except KeyboardInterrupt:
        print(f"regrow {command}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()  # nobody reads on, as behind `| head`
        return UNREAD
    except (RegrowError, OSError, MemoryError, RuntimeError) as error:
        if not _is_users(error):
            raise
        text = str(error) if getattr(error, "lists", False) else " ".join(str(error).split()) or "out of memory"
        text = f"out of memory: {text}" if _lacks_memory(error) else text
        if isinstance(error, OSError) and error.filename is None:
            text = f"the output cannot be written ({error.strerror})"
            _drop_output()
        print(f"regrow {command}: {text}", file=sys.stderr)
        return error.status if isinstance(error, RegrowError) else 2


def _drop_output() -> None:
    """What is left in buffers must not fail once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _own_warnings(command: str) -> Iterator[None]:
    """Warnings of regrow's own making are one line; Python's form, with file and source line, is for those of others."""
    before = warnings.showwarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if issubclass(category, RegrowWarning):
            print(f"regrow {command}: warning: {' '.join(str(message).split())}", file=sys.stderr)
        else:
            before(message, category, filename, lineno, file, line)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = before


def _is_users(error: Exception) -> bool:
    """Errors of regrow's own making, or of a file that cannot be used, explain themselves; others need their traceback.

    Without a name, a file that is full is the one that standard output goes to.
    """
    if isinstance(error, OSError):
        return error.filename is not None or error.errno in _FULL
    return isinstance(error, (RegrowError, MemoryError)) or _lacks_memory(error)


def _lacks_memory(error: Exception) -> bool:
    return type(error) is RuntimeError and any(words in str(error) for words in _NO_MEMORY)
