"""The notebook's cells run in order, and what they end with is shown."""

import ast
import json
from pathlib import Path

import pytest

NOTEBOOK = json.loads((Path(__file__).parents[2] / "examples" / "notebook.ipynb").read_text())


def shown(source, namespace):
    """Run a cell; the value of its last line, if that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), namespace)
    return None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), namespace)


def test_the_notebook_runs_and_shows_tables_and_a_picture():
    namespace, seen = {}, {}
    for cell in NOTEBOOK["cells"]:
        if cell["cell_type"] == "code":
            source = "".join(cell["source"])
            seen[source.splitlines()[-1]] = shown(source, namespace)
    for name in ("sparse.plan()", "sparse.journal", "sparse.explain()"):
        assert seen[name]._repr_html_().startswith("<table>")
    assert seen["sparse.plot()"]._repr_png_().startswith(b"\x89PNG")
    assert len(namespace["sparse"].journal) == 3


def test_the_notebook_is_stored_without_outputs():
    assert all(not cell.get("outputs") for cell in NOTEBOOK["cells"])
    nbformat = pytest.importorskip("nbformat")
    nbformat.validate(NOTEBOOK)
