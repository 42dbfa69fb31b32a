"""The site: every public name is in its reference, links of the gathered pages lead somewhere, how-to pages run as printed."""

import re
import shlex

import pytest
import torch
from docs.tools import build, reference

import regrow
from regrow.cli.main import main
from tests.docs.test_docs_pages import DOCS, snippets


@pytest.fixture(scope="module")
def staged(tmp_path_factory):
    return build.stage(tmp_path_factory.mktemp("site") / "docs")


def test_every_public_name_has_words():
    assert reference.undocumented() == []
    assert reference.unlisted() == set(), "add it to a page of docs/tools/reference.py"


def test_a_name_without_words_is_found(monkeypatch):
    def silent(): ...

    monkeypatch.setitem(reference.PAGES, "silent", ("Silent", __name__, ["silent"]))
    monkeypatch.setitem(globals(), "silent", silent)
    assert reference.undocumented() == [f"{__name__}.silent"]


def test_the_reference_has_every_public_name(staged):
    text = "\n".join(path.read_text() for path in (staged / "reference").glob("*.md"))
    headings = set(re.findall(r"^##+ (\S+)$", text, re.MULTILINE))
    handle = {f"Handle.{name}" for name in reference.members_of(regrow.Handle)}
    assert len(handle) > 20
    assert set(regrow.__all__) | handle | set(regrow.testing.__all__) <= headings
    assert {"magnitude", "mean_momentum", "fraction", "erdos_renyi_kernel", "cosine"} <= headings


def test_docstrings_become_markdown():
    """An example of every section."""
    text = "One line.\n\nArgs:\n    x: ``number``,\n        positive.\n\nReturns:\n    Its root.\n\nExample:\n    >>> root(4)\n    2\n"
    assert reference.markdown(text) == (
        "One line.\n\n\n**Args**\n\n- `x`: `number`,\n  positive.\n\n\n**Returns**\n\nIts root.\n\n\n**Example**\n\n"
        "```python\n>>> root(4)\n2\n```\n"
    )


def test_links_of_the_gathered_pages_lead_somewhere(staged):
    pages = [path for path in staged.rglob("*.md") if path.parent.name != "reference"]
    assert len(pages) > 30
    for page in pages:
        for target, _, anchor in (
            found.partition("#") for found in re.findall(r"\]\((?!https?:)([^)]+)\)", without_code(page))
        ):
            place = page.parent / target if target else page
            assert place.exists(), f"{page.relative_to(staged)}: {target}"
            assert not anchor or anchor in anchors(place), f"{page.relative_to(staged)}: {target}#{anchor}"


def without_code(page):
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)


def anchors(page):
    headings = re.findall(r"^#+ (.*)$", without_code(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_navigation_names_every_page(staged, monkeypatch):
    monkeypatch.setattr(build, "STAGE", staged)
    text = build.configuration()
    for page in staged.rglob("*.md"):
        name = page.relative_to(staged).as_posix()
        assert re.search(rf"[ :]{re.escape(name)}$", text, re.MULTILINE), name
    assert not re.search(r"- [A-Z]+$", text, re.MULTILINE), "no list is left to fill in"


def test_methods_are_in_the_groups_of_the_front_page(staged, monkeypatch):
    monkeypatch.setattr(build, "STAGE", staged)
    text = build.configuration()
    controls = text.split("      - Controls:\n")[1].split("  - Reference:")[0].split()
    assert controls == ["-", "methods/static.md", "-", "methods/dense.md"]
    assert text.index("- Sparse from scratch:") < text.index("methods/rigl.md") < text.index("- Dense to sparse:")


def test_a_number_and_its_spread_stay_on_one_line(staged):
    text = (staged / "results.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert sum("\u00a0±\u00a0" in row for row in rows) > 50
    assert not [row for row in rows if re.search(r"\d ± \d", row)]


def test_options_are_words_of_their_own():
    html = "<p>a -- b <code>--macs 0.1 --option.prune_rate 0.3</code></p>"
    assert build.options_whole(html) == (
        '<p>a -- b <code><span class="option">--macs</span> 0.1 <span class="option">--option.prune_rate</span> 0.3</code></p>'
    )


def test_what_the_settings_name_is_gathered(staged):
    (style,) = re.findall(r"extra_css: \[(.*)\]", (DOCS / "tools" / "mkdocs.yml").read_text())
    assert (staged / style).is_file()


def test_the_search_needs_no_network(staged):
    """The theme's plugin fetches a script of this name from elsewhere unless it is told of another."""
    settings = (DOCS / "tools" / "mkdocs.yml").read_text()
    (script,) = re.findall(r"polyfills: \[(.*)\]", settings)
    assert "iframe-worker" in script
    assert (staged / script).is_file()
    assert "http" not in settings


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGROW_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "160")
    return tmp_path


def test_the_first_hour_runs_as_printed(place):
    text = (DOCS / "first_hour.md").read_text()
    namespace = {}
    for code in snippets(text):
        exec(compile(code, "first_hour.md", "exec"), namespace)
    assert namespace["accuracy"] > 0.9
    assert len(namespace["sparse"].journal) == 2
    assert (place / "checkpoint.pt").is_file()
    namespace["sparse"].detach()
    (commands,) = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    for line in commands.splitlines():
        program, *arguments = shlex.split(line)
        assert program == "regrow"
        assert main(arguments) == 0
    assert (place / "runs" / "first" / "report.html").is_file()


def test_after_training_runs_as_printed(place):
    assert main(["train", "demo", "--max-steps", "3", "--out", "run", "--threads", "1"]) == 0
    text = (DOCS / "after_training.md").read_text()
    for line in re.findall(r"\| `regrow (.*?)` \|", text):
        assert main(line.replace("RUN", "run").split()) == 0
    assert (place / "LONGER" / "result.json").is_file()
    namespace = {"regrow": regrow, "torch": torch, "run": place / "run"}
    for code in snippets(text):
        exec(compile(code, "after_training.md", "exec"), namespace)
    assert namespace["stored"].step == 3
    assert namespace["written"] == (place / "model.safetensors").stat().st_size
    x = torch.randn(5, 64)
    wanted = namespace["model"].eval()(x)
    assert torch.equal(namespace["plain"].eval()(x), wanted)
    torch.testing.assert_close(namespace["fast"](x), wanted)


def test_the_transformers_page_runs_as_printed():
    namespace = {"regrow": regrow, "torch": torch}
    for code in snippets((DOCS / "transformers.md").read_text()):
        exec(compile(code, "transformers.md", "exec"), namespace)
    handle = namespace["sparse"]
    assert handle.nonzeros == handle.budget
    names = [row.layer for row in handle.plan() if row.sparse]
    assert sum("in_proj" in name or "self_attn" in name for name in names) >= 3
