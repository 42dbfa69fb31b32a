"""The reference: pages of Markdown from docstrings, one per question.

Docstrings are Google's form with reST's double backquotes. What is public is listed here, and a test fails when a public name, or a
field of a public record, has no words.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from importlib import import_module
from types import ModuleType
from typing import Any

import regrow

PAGES: dict[str, tuple[str, str, list[str]]] = {
    "sparsify": ("One line", "regrow", ["sparsify", "handle_of", "list_methods"]),
    "handle": ("The handle", "regrow", ["Handle"]),
    "ship": ("After training", "regrow", ["freeze", "save", "load", "compact_form"]),
    "scope": ("Which layers", "regrow", ["Scope"]),
    "method": (
        "Methods",
        "regrow",
        ["Method", "register", "When", "Prune", "Redistribute", "Grow", "LayerView", "needs"],
    ),
    "prune": ("What goes", "regrow.topology.prune", []),
    "redistribute": ("Where to", "regrow.topology.redistribute", []),
    "grow": ("What comes", "regrow.topology.grow", []),
    "score": ("Scores", "regrow.topology.score", []),
    "distribution": ("Budget per layer", "regrow.topology.distribution", []),
    "schedule": ("When, and how much", "regrow.topology.schedule", []),
    "testing": ("Check your own method", "regrow.testing", []),
    "errors": ("Errors and warnings", "regrow.errors", []),
}
_SECTIONS = ("Args", "Attributes", "Returns", "Raises", "Example", "Examples")


def names_of(page: str) -> list[str]:
    """The public names on a page: those listed, or all that a module defines."""
    _, module_name, listed = PAGES[page]
    module = import_module(module_name)
    return listed or list(getattr(module, "__all__", None) or _defined_in(module))


def unlisted() -> set[str]:
    """Names that ``regrow`` exports and no page has."""
    return set(regrow.__all__) - {name for page in PAGES for name in names_of(page)}


def _defined_in(module: ModuleType) -> list[str]:
    found = {
        n: o for n, o in vars(module).items() if not n.startswith("_") and (inspect.isfunction(o) or inspect.isclass(o))
    }
    own = [name for name, object_ in found.items() if object_.__module__ == module.__name__]
    return sorted(own, key=lambda name: inspect.getsourcelines(found[name])[1])


def members_of(kind: type) -> dict[str, Any]:
    """Public methods and properties that a class defines, in the order of its source."""
    aside = {"before_step", "after_step", *getattr(kind, "__dataclass_fields__", ())}  # the optimizer's hooks; fields
    return {
        name: value
        for name, value in vars(kind).items()
        if not name.startswith("_")
        and name not in aside
        and (callable(value) or _is_property(value) or _is_static(value))
    }


def page(name: str) -> str:
    """One page."""
    title, module_name, _ = PAGES[name]
    module = import_module(module_name)
    about = "" if module is regrow else markdown(inspect.getdoc(module) or "")
    body = "\n\n".join(entry(public, getattr(module, public)) for public in names_of(name))
    return f"# {title}\n\n`{module_name}`\n\n{about}\n\n{body}\n"


def entry(name: str, value: Any) -> str:
    """A name with its signature, its words and, for a class, its members."""
    if not (inspect.isclass(value) or callable(value)):
        return f"## {name}\n\n```python\n{name} = {_short(value)}\n```"
    head = f"## {name}\n\n```python\n{name}{signature(value)}\n```\n\n{markdown(inspect.getdoc(value) or '')}"
    if not inspect.isclass(value):
        return head
    parts = [head, *(_member(name, member, inner) for member, inner in members_of(value).items())]
    return "\n\n".join(parts)


def _member(owner: str, name: str, value: Any) -> str:
    if _is_property(value):
        words = inspect.getdoc(getattr(value, "fget", None) or getattr(value, "func", None)) or ""
        return f"### {owner}.{name}\n\n{markdown(words)}"
    inner = value.__func__ if _is_static(value) else value
    return f"### {owner}.{name}\n\n```python\n{name}{signature(inner)}\n```\n\n{markdown(inspect.getdoc(inner) or '')}"


def signature(value: Any) -> str:
    """What it takes, one argument per line where there are many."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    kept = [p for p in found.parameters.values() if p.name != "self"]
    texts = [_argument(p) for p in kept]
    joined = ", ".join(texts)
    return f"({joined})" if len(joined) < 80 else "(\n" + "".join(f"    {text},\n" for text in texts) + ")"


def _argument(parameter: inspect.Parameter) -> str:
    """Name, type and default; types are strings in our sources, and functions are named."""
    kind = parameter.annotation
    plain = str(parameter.replace(annotation=inspect.Parameter.empty, default=inspect.Parameter.empty))
    typed = plain if kind is inspect.Parameter.empty else f"{plain}: {kind if isinstance(kind, str) else kind.__name__}"
    default = parameter.default
    if default is inspect.Parameter.empty:
        return typed
    return f"{typed} = {getattr(default, '__name__', None) or re.sub(r' at 0x[0-9a-f]+', '', repr(default))}"


def markdown(docstring: str) -> str:
    """A docstring as Markdown: sections become headings, arguments a list, examples code."""
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", docstring).replace("``", "`")
    lines, section, out = text.splitlines(), "", []
    for line in lines:
        heading = re.fullmatch(r"(\w+):", line)
        if heading and heading[1] in _SECTIONS:
            out += [*_closing(section), "", f"**{heading[1]}**", ""]
            section = heading[1]
            out += ["```python"] if section.startswith("Example") else []
        elif section.startswith("Example") and line and not line.startswith(" "):
            out += [*_closing(section), line]
            section = ""
        else:
            out.append(_in_section(line, section))
    return "\n".join(out + _closing(section)).replace("\n\n```\n", "\n```\n")


def _closing(section: str) -> list[str]:
    return ["```", ""] if section.startswith("Example") else []


def _in_section(line: str, section: str) -> str:
    if section in ("Args", "Attributes", "Raises") and (found := re.match(r"    (\w[\w, *]*): (.*)", line)):
        return f"- `{found[1]}`: {found[2]}"
    if section in ("Returns", "Example", "Examples"):
        return line.removeprefix("    ")
    return "  " + line.strip() if section and line.startswith("        ") else line


def _is_property(value: Any) -> bool:
    return isinstance(value, property) or type(value).__name__ == "cached_property"


def _is_static(value: Any) -> bool:
    return isinstance(value, (staticmethod, classmethod))


def _short(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(getattr(item, "__name__", str(item)) for item in value) + "]"
    return repr(value)


def undocumented() -> list[str]:
    """Public names without words, and fields of public records that their docstring does not explain."""
    missing = []
    for page_name in PAGES:
        module = import_module(PAGES[page_name][1])
        for name in names_of(page_name):
            value = getattr(module, name)
            if not (inspect.isclass(value) or callable(value)):
                continue
            words = inspect.getdoc(value) or ""
            missing += [] if words else [f"{module.__name__}.{name}"]
            if inspect.isclass(value):
                missing += [f"{name}.{m}" for m, v in members_of(value).items() if not _words(v)]
            if dataclasses.is_dataclass(value) and name in regrow.__all__:
                fields = [field.name for field in dataclasses.fields(value)]
                missing += [f"{name}.{field}" for field in fields if not re.search(rf"\b{field}\b", words)]
    return missing


def _words(value: Any) -> str:
    inner = getattr(value, "fget", None) or getattr(value, "func", None) or getattr(value, "__func__", None) or value
    return inspect.getdoc(inner) or ""
