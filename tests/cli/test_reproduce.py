"""``regrow reproduce`` as users see it."""

import pytest

from regrow.cli.main import main
from regrow.experiments.catalogue import EXPERIMENTS
from regrow.experiments.rows import read_runs
from tests.experiments.fakes import FakeExecutor


@pytest.fixture
def fake(monkeypatch):
    executor = FakeExecutor()
    monkeypatch.setattr("regrow.experiments.sweep.LocalExecutor", lambda slots, gpus: executor)
    monkeypatch.setenv("COLUMNS", "80")
    return executor


def test_the_list_fits_80_columns(fake, capsys, monkeypatch):
    monkeypatch.setattr("regrow.experiments.duration.measured_rate", lambda: 1e11)
    assert main(["reproduce", "--list"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    for name in EXPERIMENTS:
        assert f" {name} " in out
    assert "41 x 10" in out
    assert "…" not in out
    assert "at most" in out


def test_one_cell_with_table_and_figure(tmp_path, fake, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    narrow = [
        "--model",
        "lenet300",
        "--density",
        "0.05",
        "--seeds",
        "2",
        "--epochs",
        "5",
        "--setting",
        "sparse momentum",
    ]
    assert main(["reproduce", "mnist-compression", *narrow]) == 0
    out = capsys.readouterr().out
    assert "2.050 ± 0.050" in out
    assert "1.530 ± 0.020" in out
    assert "2 of 2 runs finished" in out
    assert "note: 5 epochs" in out
    folder = tmp_path / "runs" / "reproduce" / "mnist-compression"
    assert (folder / "mnist-compression-lenet300.png").is_file()
    assert {job.config.epochs for job in fake.ran} == {5}
    assert main(["reproduce", "mnist-compression", *narrow]) == 0
    assert len(fake.ran) == 2, "finished runs are not repeated"


def test_results_apart_and_tables_only(tmp_path, fake, capsys):
    where = ["--out", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    narrow = ["--model", "lenet5", "--seeds", "0,4", "--execution", "sparse"]
    assert main(["reproduce", "ablation", *narrow, *where]) == 0
    assert "Differences to momentum / momentum" in capsys.readouterr().out
    rows = read_runs(tmp_path / "results" / "runs.csv")
    assert len(rows) == 8
    assert {row["execution"] for row in rows} == {"sparse"}
    (tmp_path / "results" / "table.md").unlink()
    count = len(fake.ran)
    assert main(["reproduce", "ablation", *narrow, *where, "--tables-only"]) == 0
    assert len(fake.ran) == count
    assert (tmp_path / "results" / "table.md").read_text().count("| sparse, window 0.001 |") == 2
    assert not any(path.is_dir() for path in (tmp_path / "results").iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name an experiment"),
        (["mnist-compresion"], "did you mean 'mnist-compression'"),
        (["ablation", "--density", "five"], "takes shares such as"),
        (["ablation", "--seeds", "x"], "seeds are a count"),
        (["ablation", "--model", "lenet"], "unknown model 'lenet' of ablation"),
    ],
)
def test_mistakes_are_one_line(fake, capsys, arguments, message):
    assert main(["reproduce", *arguments]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert len(err.splitlines()) == 1


def test_the_dense_network_never_runs_on_sparse_kernels(tmp_path, fake):
    narrow = ["--model", "lenet5", "--density", "0.05,1", "--seeds", "1", "--execution", "sparse"]
    assert main(["reproduce", "mnist-compression", *narrow, "--out", str(tmp_path)]) == 0
    assert {(row["method"], row["execution"]) for row in read_runs(tmp_path / "runs.csv")} == {
        ("dense", "masked"),
        ("sparse-momentum", "sparse"),
        ("movement", "sparse"),
        ("str", "sparse"),
        ("targeted-dropout", "masked"),
    }
