"""Run suites until time is up or their goals are met, and print the sums so far."""

import argparse
import sys
import time
from importlib import import_module
from pathlib import Path

from tests.soak import record
from tests.soak.sums import Sums, failures, first_case, is_done, table

ROOT = Path(__file__).parents[2]
FRAME = {"__init__", "__main__", "record", "sums"}
SLICE_SECONDS = 60.0


def suites(names=()):
    """Suites by name: modules beside this one that have a goal."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if path.stem in FRAME or path.stem.startswith("test_") or (names and path.stem not in names):
            continue
        module = import_module(f"tests.soak.{path.stem}")
        if hasattr(module, "GOAL"):
            found[path.stem] = module
    if missing := set(names) - set(found):
        raise SystemExit(f"there is no suite {', '.join(sorted(missing))}: choose from {', '.join(suites())}")
    return found


def soak(chosen, sums, seconds, slice_seconds=SLICE_SECONDS, kept=None):
    """Take turns, a slice each, until all goals are met or time is up; counts are kept after each slice, in a table too if asked."""
    end = time.monotonic() + seconds
    while waiting := [name for name, suite in chosen.items() if not is_done(sums, name, suite.GOAL)]:
        for place, name in enumerate(waiting):
            left = end - time.monotonic()
            if left <= 0:
                return
            suite = chosen[name]
            share = min(slice_seconds, left / (len(waiting) - place))
            counts = suite.run(time.monotonic() + share, first_case(sums, name, suite.GOAL))
            sums.add(name, counts)
            if kept is not None:
                record.add(kept, name, counts)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="suites; all by default")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--sums", type=Path, default=ROOT / "runs" / "soak.json", help="where counts add up")
    parser.add_argument(
        "--record", type=Path, help="a table of counts by code and machine to add to, e.g. results/soak/soak.csv"
    )
    parser.add_argument("--anew", action="store_true", help="forget the counts of these suites")
    options = parser.parse_args(arguments)
    chosen, sums = suites(options.names), Sums(options.sums)
    if options.anew:
        for name in chosen:
            sums.forget(name)
    soak(chosen, sums, 60 * options.minutes, kept=options.record)
    print(table(sums, chosen))
    return 1 if any(failures(sums, name, suite.ZERO) for name, suite in chosen.items()) else 0


if __name__ == "__main__":
    sys.exit(main())
