"""A run's files have one owner."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import regrow
from regrow.errors import StateError
from regrow.training.folder import RunFolder

SOURCES = Path(regrow.__file__).parent
NAMES = {path.name for name in dir(RunFolder) if isinstance(path := getattr(RunFolder(Path("a")), name), Path)} - {
    "a",
    "tensorboard",
}  # also the name of a package and of a key


def strings(path):
    return {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}


def test_no_other_module_spells_the_name_of_a_runs_file():
    assert {"config.toml", "result.json", "checkpoints"} <= NAMES, "the test itself looks for something"
    owner = SOURCES / "training" / "folder.py"
    assert strings(owner) >= NAMES
    spelt = {(path.relative_to(SOURCES), name) for path in SOURCES.rglob("*.py") for name in strings(path) & NAMES}
    assert {path for path, _ in spelt} == {owner.relative_to(SOURCES)}, spelt


def test_names_are_asked_for_without_torch():
    script = "import sys, regrow.training.folder; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(StateError, match=r"no config\.toml in it"):
        RunFolder(tmp_path).required()
    RunFolder(tmp_path).config.write_text("")
    assert RunFolder(tmp_path).required().path == tmp_path
