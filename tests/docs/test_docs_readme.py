"""The README says what the code says."""

import re
from pathlib import Path

import regrow

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def method_row(method):
    wanted = ", ".join(sorted(method.needs - {"present momentum"})) or "none"
    summary = method.summary.replace("|", r"\|")
    link = f"[{method.name}](docs/methods/{method.name}.md)"
    return f"| {link} | {method.paper} {method.year} | {summary} | {method.budget} | {wanted} | {method.extra_memory} |"


def test_table_of_methods_is_the_registry():
    rows = [line for line in README.splitlines() if "](docs/methods/" in line]
    assert rows == [method_row(method) for method in regrow.list_methods(show=False)]


def test_quickstart_is_under_ten_lines():
    snippet = README.split("```python\n")[1].split("```")[0]
    assert "regrow.sparsify(" in snippet
    assert len(snippet.splitlines()) < 10


def test_the_two_commands_exist():
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"^make ([a-z-]+)", README, re.MULTILINE)) == {"demo", "test"}
    assert {"setup", "test", "test-deep", "demo", "clean"} <= set(targets)


def test_links_and_named_files_exist():
    for page in [ROOT / "README.md", *ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        text = page.read_text()
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
        for named in re.findall(r"`((?:src|examples|benchmarks|docs)/[\w/.]+\.(?:py|md))`", text):
            assert (ROOT / named).exists(), f"{page.name}: {named}"


def test_architecture_names_every_module():
    """By its own line, or by one line for its whole package (`cli/`); methods share one."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    source = ROOT / "src" / "regrow"
    paths = [path.relative_to(source) for path in source.rglob("*.py") if not path.stem.startswith("__")]
    for path in paths:
        name, package = str(path.with_suffix("")), f"{path.parent}/"
        named = f"`{name}`" in text or f"`{package}`" in text or package == "methods/"
        assert named, f"ARCHITECTURE.md lacks a line for {name}"
