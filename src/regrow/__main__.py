"""``python -m regrow`` (also under torchrun)."""

from regrow.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
