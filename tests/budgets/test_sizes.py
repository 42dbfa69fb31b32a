"""Small files, small functions, everything documented and annotated."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "regrow").rglob("*.py"))
BESIDES = [
    path for folder in ("tests", "benchmarks", "examples", "docs") for path in sorted((ROOT / folder).rglob("*.py"))
]
LONGEST_FILE, LONGEST_FUNCTION = 400, 60


def functions(path):
    tree = ast.parse(path.read_text())
    return [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def code_lines(function):
    """Lines of signature and body without the docstring."""
    first = function.body[0]
    documented = isinstance(first, ast.Expr) and isinstance(getattr(first, "value", None), ast.Constant)
    docstring = first.end_lineno - first.lineno + 1 if documented and isinstance(first.value.value, str) else 0
    return function.end_lineno - function.lineno + 1 - docstring


def test_sources_are_found():
    assert len(SOURCES) > 40


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.stem)
def test_file_is_short(path):
    assert len(path.read_text().splitlines()) <= LONGEST_FILE


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.stem)
def test_functions_are_short(path):
    long = {f.name: code_lines(f) for f in functions(path) if code_lines(f) > LONGEST_FUNCTION}
    assert not long


def test_functions_besides_are_short_too():
    """Tests, benchmarks, examples and tools."""
    assert len(BESIDES) > 200
    long = {(path.name, f.name) for path in BESIDES for f in functions(path) if code_lines(f) > LONGEST_FUNCTION}
    assert not long


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.stem)
def test_no_unfinished_work(path):
    text = path.read_text()
    assert not [word for word in ("TODO", "FIXME", "XXX", "raise NotImplementedError") if word in text]


def test_code_lines_counts_without_the_docstring():
    tree = ast.parse('def f(a):\n    """One.\n\n    Two.\n    """\n    return a\n')
    assert code_lines(tree.body[0]) == 2
