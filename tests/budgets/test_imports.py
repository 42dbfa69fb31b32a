"""No module needs itself: rooms import one another, but module by module there is an order."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import regrow

ROOT = Path(regrow.__file__).parent
MODULES = {
    ".".join(("regrow", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in ROOT.rglob("*.py")
}


def imported(nodes: list[ast.stmt]) -> set[str]:
    """What is imported as soon as a module is: not inside functions, not for type checkers."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {name if (name := f"{node.module}.{part.name}") in MODULES else node.module for part in node.names}
        elif isinstance(node, ast.Import):
            found |= {part.name for part in node.names}
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.ClassDef):
            found |= imported([*node.body, *getattr(node, "orelse", [])])
    return found


def test_imports_have_an_order():
    needs = {name: imported(ast.parse(path.read_text()).body) & MODULES.keys() for name, path in MODULES.items()}
    order = list(TopologicalSorter({name: needs[name] - {name, "regrow"} for name in needs}).static_order())
    assert order.index("regrow.support") < order.index("regrow.execution.kernels.pattern") < order.index("regrow.api")
