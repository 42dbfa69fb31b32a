"""Stored rows carry hashes of their configurations: no later key may change them."""

import csv
import json
from pathlib import Path

import pytest

from regrow.config import from_dict
from regrow.defaults import as_stored
from regrow.experiments.rows import setting_of
from regrow.ranges import value_at

RESULTS = Path(__file__).parents[2] / "results"
FILES = ["ablation", "cost-redistribution", "growth-window", "mnist-compression", "mnist-methods"]
COLUMNS = {
    "model": "model", "data": "data.name", "method": "sparse.method", "density": "sparse.density", "seed": "seed", "epochs": "epochs",
    "execution": "sparse.execution", "window_tolerance": "sparse.window_tolerance", "scope": "sparse.scope",
    "distribution": "sparse.distribution", "batch": "data.batch", "lr": "optimizer.lr", "momentum": "optimizer.momentum",
    "weight_decay": "optimizer.weight_decay", "max_steps": "max_steps",
}  # fmt: skip
TEXTS = {"model", "data", "method", "execution", "scope", "distribution"}
WHOLE = {"seed", "epochs", "batch", "max_steps"}
EVALUATED_EVERY = (1, 5, 10)  # the one key that rows do not have and experiments set


def values(row):
    pairs = {path: _value(column, row[column]) for column, path in COLUMNS.items()}
    pairs |= json.loads(row["other"] or "{}")
    return pairs | {"sparse.options": as_stored(row["method"], json.loads(row["options"] or "{}"))}


def _value(column, text):
    return text if column in TEXTS else int(float(text)) if column in WHOLE else float(text)


def nested(pairs):
    tree = {}
    for path, value in pairs.items():
        *section, key = path.split(".")
        (tree.setdefault(section[0], {}) if section else tree)[key] = value
    return tree


@pytest.mark.parametrize("name", FILES)
def test_rows_keep_their_identities(name):
    with open(RESULTS / name / "runs.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) >= 20
    for row in rows:
        possible = [from_dict(nested({**values(row), "evaluate_every": every})) for every in EVALUATED_EVERY]
        found = [config for config in possible if config.identity() == row["identity"]]
        assert len(found) == 1, row["identity"]
        assert value_at(found[0], "sparse.method") == setting_of(found[0])["method"] == row["method"]
        assert setting_of(found[0])["options"] == row["options"]
