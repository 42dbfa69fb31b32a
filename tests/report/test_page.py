import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from regrow.cli.main import main
from regrow.config import Data
from regrow.report import write_report
from regrow.report.page import SECTIONS
from regrow.report.tables import percent
from tests.report.conftest import small, with_method

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Outline(HTMLParser):
    """Checks that tags nest, and collects sections and references."""

    def __init__(self, text):
        super().__init__()
        self.open, self.sections, self.references, self.ids, self.tags = [], [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        found = dict(attrs)
        self.references += [found[key] for key in ("src", "href", "xlink:href", "srcset", "action") if key in found]
        self.ids += [found["id"]] if "id" in found else []
        self.sections += [found["id"]] if tag == "section" else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def check(text):
    """Everything that holds for every report."""
    outline = Outline(text)
    assert outline.sections == list(SECTIONS)
    assert "script" not in outline.tags
    assert len(set(outline.ids)) == len(outline.ids)
    for reference in outline.references:
        assert reference.startswith("data:") or reference.removeprefix("#") in outline.ids
    assert not re.search(r"url\((?!#)", text)
    assert "@import" not in text
    assert "http" not in text.replace("http-equiv", "")
    assert not re.search(r"\b(nan|inf|None)\b", re.sub(r"base64,[^\"]*", "", text))
    return outline


@pytest.fixture(scope="module")
def report(finished, tmp_path_factory):
    return write_report(finished, tmp_path_factory.mktemp("out") / "deep" / "report.html").read_text()


def test_a_finished_run(report, files):
    outline = check(report)
    assert outline.tags.count("svg") == 12
    assert f"<b>{files.result['test_error']:.2f}%</b>" in report
    assert f"<b>{percent(files.result['density'])}</b>" in report
    assert f"{files.result['nonzeros']:,} of {files.result['weights']:,} weights" in report
    assert "finished" in report
    assert "journals only some updates" not in report
    assert "(n = 1)" in report
    assert files.environment["processor"] in report
    assert files.environment["torch"] in report
    assert "regrow train demo --epochs 4" in report
    removed = sum(layer.removed for record in files.journal for layer in record.layers)
    assert f"removed {removed:,} and grew" in report


def test_the_same_folder_gives_the_same_bytes(report, finished, tmp_path):
    again = shutil.copytree(finished, tmp_path / finished.name)
    assert write_report(again).read_text() == report
    assert (again / "report.html").is_file()


def test_convolutional_run_stopped_in_the_first_epochs(convolutional, tmp_path):
    text = write_report(convolutional, tmp_path / "r.html").read_text()
    check(text)
    assert "convolutions (2)" in text


@pytest.mark.parametrize(("method", "density"), [("static", 0.1), ("dense", 1.0)])
def test_methods_without_updates(train, tmp_path, method, density):
    text = write_report(train(with_method(method, density, epochs=2)), tmp_path / "r.html").read_text()
    check(text)
    assert text.count("No topology update so far") == 3
    assert ("at density" in text) == (method == "static")


def test_methods_that_journal_rarely(train, tmp_path):
    text = write_report(train(with_method("deep-r", epochs=2)), tmp_path / "r.html").read_text()
    check(text)
    assert "journals only some updates" in text
    assert "No weight moved between layers" in text


def test_a_run_that_diverged_says_where_and_why(train, tmp_path):
    folder = train(with_method("static", epochs=2))
    copied = tmp_path / "run"
    shutil.copytree(folder, copied)
    (copied / "result.json").unlink()
    (copied / "diverged.json").write_text(
        json.dumps({"identity": "", "steps": 1087, "message": "the loss overflowed <here>"})
    )
    text = write_report(copied, tmp_path / "r.html").read_text()
    check(text)
    assert "diverged at step 1,087" in text
    assert "the loss overflowed &lt;here&gt;" in text


@pytest.mark.filterwarnings("ignore:masks will never change")
def test_no_validation_data(train, tmp_path):
    config = small(epochs=1, data=replace(Data("mnist-sample", batch=600), train_split="train+val"))
    text = write_report(train(config), tmp_path / "r.html").read_text()
    check(text)
    assert "No validation data" in text
    assert "test images" in text


def test_a_run_in_progress(editable):
    (editable / "result.json").unlink()
    rows = (editable / "metrics.jsonl").read_text().splitlines(keepends=True)
    (editable / "metrics.jsonl").write_text("".join(rows[:3]))
    text = write_report(editable).read_text()
    check(text)
    assert "in progress" in text
    assert "not tested yet" in text


def test_a_run_that_has_just_begun(editable):
    for name in ("metrics.jsonl", "topology.jsonl", "speed.jsonl", "result.json", "environment.json"):
        (editable / name).unlink()
    shutil.rmtree(editable / "checkpoints")
    text = write_report(editable).read_text()
    check(text)
    assert "Nothing was logged yet" in text
    assert "no checkpoint yet" in text


def test_the_command_line(finished, tmp_path, capsys):
    assert main(["report", str(finished), "--out", str(tmp_path / "r.html")]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "r.html")
    assert main(["report", str(tmp_path)]) == 2
    assert "not the folder of a run" in capsys.readouterr().err


def test_the_page_forbids_itself_to_act_or_to_fetch(report):
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert f'<meta http-equiv="Content-Security-Policy" content="{policy}">' in report
