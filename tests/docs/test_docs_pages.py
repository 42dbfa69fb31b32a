"""Each method has its page, its options are the real ones, and every snippet runs."""

import gc
import inspect
import re
from pathlib import Path

import pytest
import torch
from torch import nn

import regrow
from regrow import native
from regrow.errors import StartWarning
from regrow.methods import METHODS

DOCS = Path(__file__).parents[2] / "docs"
BUILT_IN = tuple(METHODS)
SECTIONS = [
    "Idea",
    "Equation",
    "Call",
    "Options",
    "Budget and memory",
    "Published results",
    "What differs from the authors' code",
]


def page(name):
    return (DOCS / "methods" / f"{name}.md").read_text()


def snippets(text):
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


@pytest.fixture
def namespace():
    """What the snippets take for granted: a model, its optimizer, a batch, a run of 20 steps in epochs of 5."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 4))
    inputs, targets = torch.randn(8, 12), torch.randint(4, (8,))
    before = dict(METHODS)

    def train(model, optimizer, steps=6):
        for _ in range(steps):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()

    yield {
        "regrow": regrow,
        "torch": torch,
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
        "inputs": inputs,
        "targets": targets,
        "loss_function": nn.functional.cross_entropy,
        "steps": 20,
        "epoch": 5,
        "train": train,
    }
    METHODS.clear()
    METHODS.update(before)


def execute(text, namespace):
    """Run all snippets of a page one after the other; a second one gets the optimizer free again."""
    for code in snippets(text):
        if "sparse" in namespace:
            namespace["sparse"].detach()
        exec(compile(code, "snippet", "exec"), namespace)
        namespace["train"](namespace["model"], namespace["optimizer"])


def test_pages_are_the_registered_methods():
    assert {p.stem for p in (DOCS / "methods").glob("*.md")} == set(BUILT_IN)


@pytest.mark.parametrize("name", BUILT_IN)
def test_page_has_its_sections_in_order(name):
    assert re.findall(r"^## (.+)$", page(name), re.MULTILINE) == SECTIONS


@pytest.mark.parametrize("name", BUILT_IN)
def test_options_on_the_page_are_the_real_ones(name):
    options = page(name).split("## Options")[1].split("## ")[0]
    written = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", options, re.MULTILINE))
    real = inspect.signature(METHODS[name]).parameters
    assert written == {key: repr(value.default) for key, value in real.items()}


@pytest.mark.parametrize("name", BUILT_IN)
def test_budget_rule_and_memory_are_the_declared_ones(name):
    method = METHODS[name]()
    assert f"Budget rule: {method.budget}. Extra memory: {method.extra_memory}." in page(name)


@pytest.mark.filterwarnings("ignore:the weights look trained")
@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.filterwarnings("ignore:masks will never change")
def test_call_on_the_page_builds_that_method(name, namespace):
    execute(page(name), namespace)
    assert namespace["sparse"].method.name == name


def test_index_links_every_method():
    index = (DOCS / "index.md").read_text()
    assert set(re.findall(r"\]\(methods/([\w-]+)\.md\)", index)) == set(BUILT_IN)


@pytest.mark.filterwarnings("ignore:masks will never change", "ignore:the weights look trained")
def test_own_loop_page_runs_as_printed(namespace):
    detached = []
    for code in snippets((DOCS / "own_loop.md").read_text()):
        if "sparsify" in code and "sparse" in namespace:
            namespace["sparse"].detach()
        exec(compile(code, "snippet", "exec"), namespace)
        detached.append("detach" in code)
    assert detached == [False] * 5 + [True]
    assert regrow.handle_of(namespace["optimizer"]) is None
    assert namespace["sparse"].density == pytest.approx(0.1, abs=0.005)


@pytest.mark.skipif(not native.available(), reason="native kernels not built")
def test_execution_page_runs_as_printed(monkeypatch, tmp_path):
    monkeypatch.setenv("REGROW_CACHE", str(tmp_path))
    namespace = {}
    for code in snippets((DOCS / "execution.md").read_text()):
        exec(compile(code, "snippet", "exec"), namespace)
        gc.collect()
    assert namespace["priced"].step == 1


@pytest.mark.filterwarnings("ignore:the weights look trained")
@pytest.mark.filterwarnings("ignore:masks will never change")
def test_own_criterion_page_runs_as_printed(namespace):
    execute((DOCS / "own_criterion.md").read_text(), namespace)
    assert namespace["sparse"].method.name == "gentle"


def test_growth_window_page(namespace):
    from regrow.momentum import window_length

    text = (DOCS / "growth_window.md").read_text()
    execute(text, namespace)
    assert namespace["sparse"].needs_missing_gradients
    rows = re.findall(r"^\| (0\.\d+) \| (1e-\d|0\.1)[^|]*\| (\d+) \|", text, re.MULTILINE)
    assert len(rows) == 5
    for mu, tolerance, length in rows:
        assert window_length(float(mu), float(tolerance), 10_000) == int(length)


def test_saved_state_holds_no_pickled_objects(namespace, tmp_path):
    """SECURITY.md promises it."""
    execute(page("sparse-momentum"), namespace)
    torch.save(namespace["sparse"].state_dict(), tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    assert state["step"] == 6


def test_counting_flops_gives_the_figures_beside_it():
    (code,) = (code for code in snippets((DOCS / "experiments.md").read_text()) if "flops" in code)
    namespace = {}
    counted = 0
    for line in code.splitlines():
        expression, _, note = line.partition("  # ")
        if note:
            assert eval(expression, namespace) == pytest.approx(float(note.split()[0].strip(":")), abs=5e-3)
            counted += 1
        else:
            exec(line, namespace)
    assert counted == 4


def test_pretrained_page_runs_as_printed_and_shows_the_real_warning(namespace):
    namespace["train"](namespace["model"], namespace["optimizer"])
    text = (DOCS / "pretrained.md").read_text()
    for code in snippets(text):
        exec(compile(code, "snippet", "exec"), namespace)
        namespace["train"](namespace["model"], namespace["optimizer"])
    assert namespace["sparse"].method.name == "sparse-momentum"
    namespace["sparse"].detach()
    with pytest.warns(StartWarning) as caught:
        regrow.sparsify(namespace["model"], namespace["optimizer"], density=0.2, steps=10, update_every=5)
    said = re.sub(r"\(.*?\)", "()", str(caught[0].message))
    printed = re.sub(r"\(.*?\)", "()", " ".join(re.search(r"StartWarning: (.*?)\n```", text, re.DOTALL)[1].split()))
    assert said == printed


def test_lightning_recipe_is_the_tested_one():
    tested = (DOCS.parent / "tests" / "integrations" / "test_lightning.py").read_text()
    recipe = (
        (DOCS / "trainers.md")
        .read_text()
        .split("def on_train_start")[1]
        .split("```")[0]
        .replace("self.sparse", "self.handle")
    )
    assert "def on_train_start" + recipe.rstrip() in tested
