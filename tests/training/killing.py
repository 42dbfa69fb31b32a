"""Kill runs again and again, let them finish, and compare: a script, so that the processes it kills are its own.

    python -m tests.training.killing WORK CASE:HOW:KILLS ...

HOW is ``clock`` (SIGKILL from outside at random instants), ``ask`` (SIGINT or SIGTERM, likewise) or ``point`` (the process kills
itself before, within or after the n-th write, rename, removal or mask change, n random). Prints one JSON object.
"""

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import torch

from regrow import files, network
from regrow.network import SparseNetwork
from regrow.training import checkpoint, ledger, metrics
from regrow.training.main import STOPPED, train
from tests.training import tiny

MANY = 400


def die():
    os.kill(os.getpid(), signal.SIGKILL)


class Fate:
    """Counts calls of the watched functions and dies at one of them."""

    def __init__(self, at, moment):
        self.left, self.moment = at, moment

    def watch(self, owner, name):
        original = getattr(owner, name)

        def watched(*arguments, **options):
            self.left -= 1
            if self.left == 0 and self.moment == "before":
                die()
            if self.left == 0 and self.moment == "within":
                self.half(original, arguments, options)
            result = original(*arguments, **options)
            if self.left == 0:
                die()
            return result

        setattr(owner, name, watched)

    @staticmethod
    def half(original, arguments, options):
        """Writes get half of their content out, others nothing, then the process is gone."""
        *head, last = arguments
        if isinstance(last, (bytes, str)):
            original(*head, last[: len(last) // 2], **options)
        die()


def watch_everything(fate):
    fate.watch(checkpoint, "write_through")
    fate.watch(files, "write_through")
    fate.watch(checkpoint.os, "rename")
    fate.watch(files.os, "replace")
    fate.watch(files.shutil, "rmtree")
    fate.watch(ledger, "append")
    fate.watch(metrics, "append")
    fate.watch(SparseNetwork, "commit")
    fate.watch(network, "move_values")


def start(config, folder, fate=None):
    """Train in a child process."""
    child = os.fork()
    if child:
        return child
    log = os.open(str(folder) + ".log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    code = 1
    try:
        if fate is not None:
            watch_everything(fate)
        code = train(config, folder)
    except BaseException:
        import traceback

        traceback.print_exc()
    os._exit(code)


def finish(child):
    """True if the child came to its end, False if it was killed or stopped on request; anything else is an error."""
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return False
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == STOPPED:
        return False
    if status:
        raise SystemExit(f"a run failed with status {status}")
    return True


def ask(child, draw, folder, seconds):
    """Send a signal once the run has made a step, which is when it listens."""
    rows = folder / "speed.jsonl"
    before = rows.stat().st_mtime_ns if rows.is_file() else 0
    while not (rows.is_file() and rows.stat().st_mtime_ns > before and rows.stat().st_size):
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return
        time.sleep(0.005)
    time.sleep(draw.uniform(0, seconds / 4))
    os.kill(child, draw.choice([signal.SIGINT, signal.SIGTERM]))


def attempt(how, draw, config, folder, seconds):
    """Start the run and have it killed somewhere; True if it came to its end before."""
    if how == "point":
        fate = Fate(draw.randint(1, MANY), draw.choice(["before", "within", "after"]))
        return finish(start(config, folder, fate))
    child = start(config, folder)
    if how == "ask":
        ask(child, draw, folder, seconds)
        return finish(child)
    time.sleep(draw.uniform(0, seconds))
    os.kill(child, signal.SIGKILL)
    return finish(child)


def punish(case, how, kills, work):
    """Let one run finish in peace and others not, until so many kills are spent."""
    config = tiny.config(tiny.write_data(work / "data.npz"), **tiny.CASES[case])
    whole = work / "whole"
    began = time.monotonic()
    finish(start(config, whole))
    seconds, draw = time.monotonic() - began, random.Random(f"{case} {how}")
    report = {"whole": tiny.digests(whole), "runs": [], "killed": 0, "leftovers": tiny.leftovers(whole)}
    while report["killed"] < kills:
        folder = work / f"killed-{len(report['runs'])}"
        done = False
        while not done:
            spare = report["killed"] >= kills
            done = finish(start(config, folder)) if spare else attempt(how, draw, config, folder, seconds)
            report["killed"] += not done
        report["runs"].append(tiny.digests(folder))
        report["leftovers"] += tiny.leftovers(folder)
        shutil.rmtree(folder)
    return report


def main(work, *tasks):
    torch.set_num_threads(1)
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)  # imports what every child would import again
    reports = {}
    for task in tasks:
        case, how, kills = task.split(":")
        folder = Path(work) / f"{case}-{how}"
        folder.mkdir()
        reports[task] = punish(case, how, int(kills), folder)
    print(json.dumps(reports))


if __name__ == "__main__":
    main(*sys.argv[1:])
