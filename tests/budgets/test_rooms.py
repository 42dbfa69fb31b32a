"""A folder of many files says what is in it, and says it truly."""

import re
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2]
SOURCES = HOME / "src" / "regrow"
MOST = 10


def files(folder):
    return [path for path in folder.iterdir() if path.is_file() and path.suffix not in (".so", ".pyc")]


def rooms():
    made = {"__pycache__", "build"}
    folders = [SOURCES, *(p for p in SOURCES.rglob("*") if p.is_dir() and not made & set(p.relative_to(SOURCES).parts))]
    return [folder for folder in folders if len(files(folder)) > MOST]


def test_rooms_are_found():
    assert {SOURCES, SOURCES / "topology", SOURCES / "csrc"} <= set(rooms())


@pytest.mark.parametrize("folder", rooms(), ids=lambda path: path.name)
def test_a_room_has_a_short_readme_that_names_what_exists(folder):
    text = (folder / "README.md").read_text()
    assert 3 <= len(text.splitlines()) <= 40
    named = [
        name
        for line in text.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`([^`]+)`", line.split("|")[1])
    ]
    missing = [name for name in named if not any((folder / f"{name}{end}").exists() for end in ("", ".py"))]
    assert not missing


@pytest.mark.parametrize("folder", ["training", "topology", "shipping", "bench", "data", "report"])
def test_these_rooms_name_every_file(folder):
    text = (SOURCES / folder / "README.md").read_text()
    assert not [
        path.stem
        for path in (SOURCES / folder).glob("*.py")
        if path.stem != "__init__" and f"`{path.stem}`" not in text
    ]


def imports(folder):
    """Packages of this library that the modules of a room import, also inside functions."""
    texts = [path.read_text() for path in (SOURCES / folder).rglob("*.py")]
    return {name for text in texts for name in re.findall(r"^\s*(?:from|import) regrow\.(\w+)", text, re.MULTILINE)}


@pytest.mark.parametrize(
    ("below", "above"),
    [
        ("execution", "data"),
        ("experiments", "cli"),
        ("topology", "execution"),
        ("models", "training"),
        ("data", "training"),
    ],
)
def test_rooms_do_not_import_each_other_in_a_circle(below, above):
    assert above not in imports(below)


def test_nothing_but_the_program_imports_commands():
    rooms = {path.name for path in SOURCES.iterdir() if path.is_dir() and path.name not in ("cli", "__pycache__")}
    assert not [room for room in rooms if "cli" in imports(room)]
