"""kill -9 at random instants and inside saves, updates and appends: nothing lost, nothing different, nothing left over.

A combination of method, optimizer and execution is trained whole, and again while it is killed; both must leave the same bytes.
``auto`` decides by a stopwatch, here a dice: its whole run repeats the decisions that the killed one came to, and no step may ever have
been computed with two different ones. Lottery tickets train in a loop of their own. ``compact`` computes sparse and stores so.
"""

import itertools
import json
import os
import random
import signal
import tempfile
import time
from pathlib import Path

import torch

from regrow import data, sparsify
from regrow.config import Optimizer, Sparse
from regrow.execution.choosing import auto, measure
from regrow.execution.choosing.auto import Auto, Verdict
from regrow.state import export_state
from regrow.training.checkpoint import Checkpoints
from regrow.training.main import train
from regrow.training.run import Run
from tests.training import tiny
from tests.training.killing import Fate, watch_everything

GOAL = {"kills": 280}
ZERO = ("lost", "different", "left over")
METHODS = ("sparse-momentum", "rigl", "set", "granet", "deep-r", "top-kast", "sr-ste", "lottery-ticket")
STORED_COMPACT = ("sparse-momentum", "rigl", "set", "granet")
OPTIMIZERS = ("sgd", "adamw")
COMBINATIONS = [
    *itertools.product(METHODS, OPTIMIZERS, ("masked", "sparse", "auto")),
    *itertools.product(STORED_COMPACT, OPTIMIZERS, ("compact",)),
]
KILLS_PER_CASE = 5
POINTS = 80
MEMORY = "/dev/shm"
STEPS, ROUND = 20, 7


def run(deadline, first):
    counts = dict.fromkeys((*GOAL, *ZERO, "starts"), 0)
    torch.set_num_threads(1)
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)  # imports what every child would import again
    number = first // KILLS_PER_CASE
    while time.monotonic() < deadline or not counts["kills"]:
        with tempfile.TemporaryDirectory(prefix="regrow-kills-", dir=MEMORY if os.path.isdir(MEMORY) else None) as work:
            for name, count in punish(number, Path(work)).items():
                counts[name] += count
        number += 1
    return counts


def punish(number, work, kills=KILLS_PER_CASE):
    """Runs of one combination, killed again and again until so many kills are spent."""
    combination, draw = COMBINATIONS[number % len(COMBINATIONS)], random.Random(number)
    counts = dict.fromkeys((*GOAL, *ZERO, "starts"), 0)
    job = job_of(*combination, work)
    while counts["kills"] < kills:
        place = work / f"run-{counts['starts']}"
        place.mkdir()
        compare(f"{number} ({' '.join(combination)})", job, place, draw, counts, kills)
    return counts


def compare(case, job, place, draw, counts, kills):
    """Kill one run, let it end, and compare it with one that was left alone."""
    killed, whole, log = place / "killed", place / "whole", place / "decisions.jsonl"
    done, last = False, counts["starts"] + 40
    while not done and counts["starts"] < last:
        done = attempt(job, killed, log, draw if counts["kills"] < kills else None, counts, case)
    if not done or end(start(job, whole, log, repeat=True)) != 0:
        told(case, counts, "lost", f"no end after {counts['starts']} starts: {tail(place)}")
        return
    before, after = digests(whole), digests(killed)
    if different := [name for name in before | after if before.get(name) != after.get(name)]:
        told(case, counts, "different", ", ".join(different))
    if mixed := two_ways(log):
        told(case, counts, "different", f"steps {mixed} were computed in two ways")
    if odd := leftovers(killed):
        told(case, counts, "left over", ", ".join(odd))


def attempt(job, folder, log, draw, counts, case):
    """One start; True if it came to its end. Without ``draw`` nobody kills it."""
    counts["starts"] += 1
    fate = (
        Fate(draw.randint(1, POINTS), draw.choice(["before", "within", "after"]))
        if draw and draw.random() < 0.8
        else None
    )
    child = start(job, folder, log, fate)
    if draw is not None and fate is None:
        time.sleep(draw.uniform(0, 1.5))
        os.kill(child, signal.SIGKILL)
    code = end(child)
    counts["kills"] += code == -signal.SIGKILL
    if code not in (0, -signal.SIGKILL):
        told(case, counts, "lost", f"exit code {code}")
        return True
    return code == 0


def told(case, counts, what, message):
    print(f"kills: case {case}: {what}: {message}", flush=True)
    counts[what] += 1


def tail(work):
    return " | ".join(path.read_text()[-400:] for path in work.glob("*.log"))


# ------------------------------------------------------------------------------------------------ in the child


def start(job, folder, log, fate=None, repeat=False):
    """Run a job in a child process, whose ``auto`` rolls dice, or repeats what was decided before."""
    child = os.fork()
    if child:
        return child
    output = os.open(f"{folder}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    code = 1
    try:
        os.environ["REGROW_CACHE"] = f"{folder}.cache-{os.getpid()}"
        watch_decisions(log, repeat)
        if fate is not None:
            watch_everything(fate)
        code = job(folder)
    except BaseException:
        import traceback

        traceback.print_exc()
    os._exit(code)


def end(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Now:
    """The step that is being computed."""

    step = 0


def watch_decisions(log, repeat):
    dice = random.Random(os.urandom(8))
    measure.milliseconds = lambda candidates: {name: dice.uniform(0.1, 2.0) for name in candidates}
    auto.CLEAR = 1.0  # no second look: dice would nearly never win twice
    decided = {row["decided"]: row["decision"] for row in rows(log) if "decided" in row}
    measured, decide, step = Auto._measured, Auto.decide, Run._train_step

    def repeated(self, recorder):
        return Verdict.from_dict(decided[Now.step]) if repeat else measured(self, recorder)

    def noted(self):
        did = decide(self)
        if did and not repeat:
            note(log, {"decided": Now.step, "decision": self.verdict.as_dict()})
        return did

    def stepped(self, *batch):
        Now.step = self.step
        use(log, self.parts.handle, repeat)
        step(self, *batch)

    Auto._measured, Auto.decide, Run._train_step = repeated, noted, stepped


def use(log, handle, repeat):
    """Write down with which decision a step is computed."""
    found = handle.switch.auto and handle.switch.auto.verdict
    if not repeat:
        note(log, {"used": Now.step, "sparse": sorted(found.sparse) if found else None})


def note(log, row):
    with open(log, "a") as file:
        file.write(json.dumps(row) + "\n")


def rows(log):
    return [json.loads(line) for line in log.read_text().splitlines()] if log.is_file() else []


def two_ways(log):
    """Steps that were computed with different decisions."""
    ways = {}
    for row in rows(log):
        if "used" in row:
            ways.setdefault(row["used"], set()).add(json.dumps(row["sparse"]))
    return sorted(step for step, found in ways.items() if len(found) > 1)


# ------------------------------------------------------------------------------------------------ what is run


def job_of(method, optimizer, execution, work):
    rate = {"sgd": 0.05, "adamw": 0.01}[optimizer]
    path = tiny.write_data(work / "data.npz")
    if method == "lottery-ticket":
        return lambda folder: tickets(path, optimizer, rate, execution, folder)
    every = 0 if method in ("deep-r", "sr-ste") else 3
    density = 0.5 if method == "sr-ste" else 0.3
    storage = "compact" if execution == "compact" else "dense"
    way = "sparse" if execution == "compact" else execution
    sparse = Sparse(method, density, update_every=every, window_tolerance=0.5, execution=way, storage=storage)
    seconds = 1e9 if execution == "auto" else 0.0  # what is decided must be saved also where no checkpoint is due
    config = tiny.config(
        path, epochs=2, sparse=sparse, optimizer=Optimizer(optimizer, rate), checkpoint_seconds=seconds
    )
    return lambda folder: train(config, folder)


def tickets(path, optimizer, rate, execution, folder):
    """Rounds of train, prune, rewind in a loop of one's own, with a checkpoint after each step."""
    torch.manual_seed(0)
    network = tiny.tiny_net()
    kind = {"sgd": lambda p: torch.optim.SGD(p, rate, momentum=0.9), "adamw": lambda p: torch.optim.AdamW(p, rate)}[
        optimizer
    ]
    steps = kind(network.parameters())
    handle = sparsify(network, steps, "lottery-ticket", density=0.3, execution=execution)
    batches = list(data.load(path).batches(batch_size=20))
    checkpoints = Checkpoints(folder / "checkpoints")
    checkpoints.clean()
    found, first = checkpoints.latest(), 0
    if found is not None:
        first, state = found
        network.load_state_dict(state["model"])
        steps.load_state_dict({"state": state["optimizer"], "param_groups": steps.state_dict()["param_groups"]})
        handle.load_state_dict(state["sparse"])
    for step in range(first, STEPS):
        Now.step = step
        use(folder.parent / "decisions.jsonl", handle, folder.name == "whole")
        torch.manual_seed(step)
        images, labels = batches[step % len(batches)]
        steps.zero_grad()
        torch.nn.functional.cross_entropy(network(images), labels).backward()
        steps.step()
        if (step + 1) % ROUND == 0:
            handle.rewind()
        parts = {
            "model": network.state_dict(),
            "optimizer": steps.state_dict()["state"],
            "sparse": export_state(handle),
        }
        checkpoints.save(step + 1, {"step": step + 1, **parts})
    return 0


def digests(folder):
    if (folder / "config.toml").is_file():
        return tiny.digests(folder)
    newest = max((folder / "checkpoints").glob("step-*"))
    return {path.name: path.read_bytes() for path in newest.iterdir()}


def leftovers(folder):
    if (folder / "config.toml").is_file():
        return tiny.leftovers(folder)
    return sorted(path.name for path in (folder / "checkpoints").iterdir() if not path.name.startswith("step-"))
