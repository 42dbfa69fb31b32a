"""Help as wide as the terminal: examples are written in one line each, with what they do behind them."""

from __future__ import annotations

import re
import shutil
import textwrap

_ASIDE = re.compile(r"^(\s*\S.*?\S) {3,}(\S.*)$")
_EXAMPLE = re.compile(r"^\s|^(regrow|torchrun) ")


def columns() -> int:
    """Characters that argparse would use, too."""
    return max(40, shutil.get_terminal_size().columns - 2)


def fitted(text: str, width: int) -> str:
    """Text with no line beyond ``width`` where words allow: prose filled anew, asides of examples in a line of their own.

    Example:
        >>> print(fitted("Train.\\n\\nregrow train demo    one of the presets", 30))
        Train.
        <BLANKLINE>
        regrow train demo
            one of the presets
    """
    lines: list[str] = []
    prose: list[str] = []
    for line in [*text.strip("\n").splitlines(), ""]:
        if line.strip() and not _EXAMPLE.match(line):
            prose.append(line)
            continue
        if prose:
            lines += prose if max(map(len, prose)) <= width else textwrap.wrap(" ".join(prose), width)
            prose = []
        lines += _example(line, width)
    return "\n".join(lines).rstrip("\n")


def _example(line: str, width: int) -> list[str]:
    aside = _ASIDE.match(line)
    if len(line) <= width or aside is None:
        return [line]
    command, explained = aside.groups()
    indent = " " * (len(command) - len(command.lstrip()) + 4)
    return [command, *textwrap.wrap(explained, width, initial_indent=indent, subsequent_indent=indent)]
