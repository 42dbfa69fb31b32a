"""The README says what the code says."""

import re
from pathlib import Path

import regrow

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def method_row(method):
    wanted = ", ".join(sorted(method.needs - {"present momentum"})) or "none"
    summary = method.summary.replace("|", r"\|")
    link = f"[{method.name}](methods/{method.name}.md)"
    return f"| {link} | {method.citation} | {summary} | {method.budget} | {wanted} | {method.extra_memory} |"


def test_table_of_methods_is_the_registry():
    rows = [line for line in (ROOT / "docs" / "methods.md").read_text().splitlines() if line.startswith("| [")]
    assert rows == [method_row(method) for method in regrow.list_methods(show=False)]


def test_the_readme_is_two_screens():
    """What it is, a figure, three numbers, install, the one line, what next: tables live in docs."""
    assert len(README.splitlines()) <= 75
    assert "pip install" in README.split("```sh")[1]
    numbers = [line for line in README.splitlines() if line.startswith("| **")]
    assert len(numbers) == 3
    assert "<!-- results:" not in README


def test_the_readmes_numbers_are_those_of_the_tables():
    faster, error, size = (
        re.search(r"\*\*([\d.]+)", line)[1] for line in README.splitlines() if line.startswith("| **")
    )
    docs = ROOT / "docs"
    tables = (docs / "benchmarks.md").read_text().split("<!-- results: speed:avx512 ")[1]
    speeds = [line.split("|") for line in tables.splitlines()]
    head = next(cells for cells in speeds if " 5% " in cells)
    row = next(cells for cells in speeds if cells[1:2] == [" VGG16-D, forward + backward, batch 128 "])
    assert row[head.index(" 5% ")].split()[0] == f"{faster}x"
    rows = (
        (docs / "results.md").read_text().split("<!-- results: mnist-compression lenet300:curves -->")[1].splitlines()
    )
    dense, five = (
        [cell.split("±")[0] for cell in next(line for line in rows if line.startswith(name)).split("|")]
        for name in ("| dense |", "| sparse momentum | 5 |")
    )
    assert f"{float(five[5]):.2f}" == error
    assert f"dense {float(dense[5]):.2f}%, the paper {float(five[6]):.2f}%" in README
    assert f"| values in fp32 | 100% | {size}% |" in (docs / "sparse_file.md").read_text()


def test_the_readmes_race_is_that_of_the_table():
    lines = (ROOT / "docs" / "results.md").read_text().split("<!-- results: race ")[1].splitlines()
    cells = {line.split(" | ")[0]: line.split(" | ") for line in lines if line.startswith("| ")}
    dense, thin, bound = (
        cells[f"| {name}"] for name in ("dense", *(f"sparse-momentum@0.1{end}" for end in ("", ":macs=0.05")))
    )
    column = cells["| setting"].index("of dense")
    assert f"{float(thin[column]):.2f} of the dense time" in README
    assert f"multiply-accumulates as well {float(bound[column]):.2f};" in README
    errors = [float(row[column - 2].split(" ± ")[0]) for row in (thin, bound, dense)]
    assert "test errors {:.1f} and {:.1f}%, dense {:.1f}%".format(*errors) in README


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
