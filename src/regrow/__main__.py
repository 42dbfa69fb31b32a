"""``python -m regrow`` (also under torchrun)."""

from regrow.cli.main import main

raise SystemExit(main())
