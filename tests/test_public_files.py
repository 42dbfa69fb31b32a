"""What a public repository is expected to have, in forms that tools can read."""

import tomllib
from pathlib import Path

import pytest

import regrow

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def targets():
    lines = (ROOT / "Makefile").read_text().splitlines()
    return {line.split(":")[0] for line in lines if ":" in line and not line.startswith(("\t", "#", "$", "."))}


def commands(node):
    if isinstance(node, dict):
        yield from (node["run"].split() for key in node if key == "run")
        node = list(node.values())
    for inner in node if isinstance(node, list) else ():
        yield from commands(inner)


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda path: path.stem)
def test_workflows_call_the_commands_of_developers(path):
    found = list(commands(yaml.safe_load(path.read_text())))
    assert found
    for program, *arguments in found:
        if program == "make":
            assert arguments[0] in targets()
        else:
            assert (ROOT / program).stat().st_mode & 0o100, f"{program} can be run"


def test_citation_version_is_the_packages():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"] == regrow.__version__
    assert citation["preferred-citation"]["year"] == 2019


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem
)
def test_issue_forms_are_whole(path):
    form = yaml.safe_load(path.read_text())
    if path.stem != "config":
        assert {"name", "description", "body"} <= set(form)
        assert all(field["attributes"]["label"] for field in form["body"])


def test_the_core_needs_no_heavy_package():
    heavy = {"torchvision", "ray", "lightning", "transformers", "timm", "tensorboard", "accelerate"}
    assert not heavy & {requirement.split(">")[0] for requirement in PROJECT["dependencies"]}
