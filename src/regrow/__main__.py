"""The program ``regrow``, and ``python -m regrow`` (also under torchrun)."""

import sys

INTERRUPTED = 130


def main() -> int:
    """Run a command. Ctrl-C is one line from the start: while commands are imported, too."""
    try:
        from regrow.cli.main import main as run
    except KeyboardInterrupt:
        print("regrow: interrupted", file=sys.stderr)
        return INTERRUPTED
    return run()


if __name__ == "__main__":
    raise SystemExit(main())
