"""The command line: fast help, a frozen list of options, one-line errors."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import regrow
from regrow.cli.main import COMMANDS, build_parser, main, options_of

ROOT = Path(__file__).parents[2]

# Frozen on purpose: a new command or option is a promise to users. Change this list only with the documentation.
OPTIONS = {
    "demo": ["-h", "--help", "--out", "--sample", "--max-steps"],
    "train": ["-h", "--help", "--out", "--list", "--show"],
    "evaluate": ["-h", "--help", "--split", "--execution"],
    "data": ["-h", "--help", "--root"],
    "plan": ["-h", "--help", "--memory"],
    "methods": ["-h", "--help"],
    "sweep": ["-h", "--help", "--grid", "--seeds", "--out", "--jobs", "--on"],
    "reproduce": [
        "-h",
        "--help",
        "--list",
        "--model",
        "--setting",
        "--density",
        "--seeds",
        "--epochs",
        "--execution",
        "--out",
        "--results",
        "--tables-only",
        "--jobs",
        "--on",
    ],
    "bench": [
        "-h",
        "--help",
        "--density",
        "--model",
        "--batch",
        "--storage",
        "--windows",
        "--auto",
        "--masks",
        "--updates",
        "--only",
        "--repeats",
        "--rounds",
        "--threads",
        "--no-compile",
        "--no-memory",
        "--json",
        "--out",
    ],
    "race": ["-h", "--help", "--settings", "--seeds", "--slice", "--images", "--clock", "--execution", "--out"],
    "report": ["-h", "--help", "--out"],
    "export": ["-h", "--help", "--to", "--values", "--dense", "--sparse-initialisers", "--quiet"],
    "infer": ["-h", "--help", "--data", "--split", "--batch", "--threads", "--allow"],
    "doctor": ["-h", "--help"],
}


def python(*arguments, **options):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=environment, timeout=120, **options
    )


def test_commands_and_options_are_frozen():
    assert options_of(build_parser()) == OPTIONS
    assert list(COMMANDS) == list(OPTIONS)


HELP = """
import sys, time
from regrow.cli.main import main
try:
    main({arguments})
except SystemExit:
    pass
heavy = [name for name in ("torch", "numpy", "rich", "PIL", "matplotlib", "scipy") if name in sys.modules]
print("\\nHEAVY", heavy)
print("CPU", time.process_time())
"""


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["train", "demo", "--show", "--lr", "0.3"]])
def test_help_is_light(arguments):
    done = python("-c", HELP.format(arguments=arguments))
    assert done.returncode == 0, done.stderr
    assert "HEAVY []" in done.stdout
    # Not a wall time: processor time, which other programs on the machine hardly change; a tenth is usual.
    assert float(done.stdout.rsplit("CPU", 1)[1]) < 0.5


def test_python_m_regrow():
    done = python("-m", "regrow", "--version")
    assert (done.returncode, done.stdout) == (0, f"regrow {regrow.__version__}\n")


INTERRUPTED = """
import sys
class Finger:
    def find_spec(self, name, *rest):
        if name == "regrow.errors":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Finger())
from regrow.__main__ import main
raise SystemExit(main())
"""


def test_ctrl_c_while_commands_are_imported_is_one_line():
    done = python("-c", INTERRUPTED)
    assert (done.returncode, done.stderr) == (130, "regrow: interrupted\n")


def test_entry_point_and_version_agree_with_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"regrow": "regrow.__main__:main"}
    assert project["version"] == regrow.__version__


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train"], "name a preset or a TOML file"),
        (["train", "nope"], "unknown preset 'nope'"),
        (["train", "demo", "--densty", "0.1"], "did you mean 'density'"),
        (["train", "demo", "--density", "2"], "sparse.density must lie in (0, 1]"),
        (["train", "demo", "--density"], "--density needs a value"),
        (["train", "demo", "--method", "rigel", "--out", "{tmp}"], "did you mean 'rigl'"),
        (["train", "demo", "--option.prune_rat", "0.1", "--out", "{tmp}"], "did you mean 'prune_rate'"),
        (["train", "demo", "--model", "lenet", "--out", "{tmp}"], "unknown model 'lenet'"),
        (["train", "demo", "--model_options.depth", "3", "--out", "{tmp}"], "has no option 'depth'"),
        (
            ["train", "demo", "--model", "wrn-28-2", "--model_options.dropout", "abc", "--out", "{tmp}"],
            "model 'wrn-28-2' cannot have model_options dropout = 'abc': ",
        ),
        (
            ["train", "demo", "--model_options.num_classes", "-3", "--out", "{tmp}"],
            "model 'lenet300' cannot have model_options num_classes = -3: ",
        ),
        (
            ["train", "demo", "--model_options.num_classes", "3", "--out", "{tmp}"],
            "model 'lenet300' has 3 outputs, too few for the 10 classes of mnist-sample: leave model_options.num_classes",
        ),
        (["plan", "demo", "--model_options.num_classes", "3"], "too few for the 10 classes"),
        (
            ["train", "demo", "--model_options.input_shape", "[1, 20, 20]", "--out", "{tmp}"],
            "model 'lenet300' does not take images of 1x28x28: ",
        ),
        (["train", "demo", "--scope", "sparse", "--out", "{tmp}"], "unknown scope"),
        (["train", "demo", "--data.name", "mnits", "--out", "{tmp}"], "did you mean 'mnist'"),
        (["train", "demo", "--out", "{file}/below"], "{file}"),
        (["train", "demo", "--threads", "100000", "--out", "{tmp}"], "threads must be at most"),
        (["plan", "demo", "--compile", "maybe"], "compile must be true or false, got 'maybe'"),
        (["plan", "demo", "--seed", "99999999999999999999"], "seed must lie in [-2^63, 2^63)"),
        (
            ["plan", "demo", "--momentum", "0.5", "--optimizer.name", "adamw"],
            "optimizer.momentum means nothing to adamw: leave it out; Adam's is the first of optimizer.betas",
        ),
        (["plan", "{toml}"], "optimizer.momentum means nothing to adam"),
        (["plan", "demo", "--betas", "[0.8, 0.9]"], "optimizer.betas means nothing to sgd"),
        (["sweep", "demo", "--density", "0.1,0.2"], "got '0.1,0.2'; for several values say regrow sweep --grid"),
        (["plan", "demo", "--lr", "fast"], "optimizer.lr must be a number, got 'fast'"),
        (["plan", "demo", "--model", "lenet"], "unknown model"),
        (["evaluate", "{tmp}/missing"], "is not the folder of a run"),
        (["data", "get"], "name a data set"),
        (["data", "get", "mnits"], "unknown data set"),
        (["methods", "rigel"], "did you mean 'rigl'"),
    ],
)
def test_errors_of_the_user_are_one_line_and_exit_code_2(arguments, words, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    (tmp_path / "adam.toml").write_text('[optimizer]\nname = "adam"\nmomentum = 0.5\n')
    places = {"tmp": str(tmp_path / "run"), "file": str(tmp_path / "file"), "toml": str(tmp_path / "adam.toml")}
    assert main([argument.format(**places) for argument in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"regrow {arguments[0]}: ")
    assert captured.err.count("\n") == 1
    assert words.format(**places) in captured.err


@pytest.mark.parametrize("arguments", [[], ["methods", "--nope"], ["plan", "demo", "extra"]])
def test_wrong_usage_is_exit_code_2(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert f"usage: {' '.join(['regrow', *arguments[:1]])} " in capsys.readouterr().err


def test_a_bug_keeps_its_traceback(monkeypatch):
    def broken(options):
        raise ValueError("a bug")

    monkeypatch.setattr("regrow.cli.methods.run", broken)
    with pytest.raises(ValueError, match="a bug"):
        main(["methods"])


def test_ctrl_c_is_one_line_and_exit_code_130(monkeypatch, capsys):
    def interrupted(options):
        raise KeyboardInterrupt

    monkeypatch.setattr("regrow.cli.data.run", interrupted)
    assert main(["data", "get", "mnist"]) == 130
    assert capsys.readouterr().err == "regrow data: interrupted\n"


def test_a_reader_that_goes_away_is_no_error():
    code = (
        "import sys, types; from regrow.cli import main;"
        "main.parse = lambda _: types.SimpleNamespace(run=lambda _: print('much' * 100_000));"
        "sys.exit(main.main(['plan']))"
    )
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as command:
        command.stdout.close()
        errors = command.stderr.read()
    assert (command.returncode, errors) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full disk to write to")
def test_output_onto_a_full_disk_ends_in_one_line():
    with open("/dev/full", "w") as full:
        command = subprocess.run([sys.executable, "-m", "regrow", "methods"], stdout=full, stderr=subprocess.PIPE)
    said = b"regrow methods: the output cannot be written (No space left on device)\n"
    assert (command.returncode, command.stderr) == (2, said)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (MemoryError(), "regrow methods: out of memory"),
        (MemoryError("Unable to allocate 4 TiB"), "regrow methods: Unable to allocate 4 TiB"),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
            "regrow methods: out of memory: [enforce",
        ),
        (RuntimeError("could not create a primitive"), "regrow methods: out of memory: could not create a primitive"),
    ],
)
def test_without_memory_there_is_one_line(error, line, monkeypatch, capsys):
    def fail(options):
        raise error

    monkeypatch.setattr("regrow.cli.methods.run", fail)
    assert main(["methods"]) == 2
    assert capsys.readouterr().err.startswith(line)


def test_other_errors_keep_their_traceback(monkeypatch):
    def fail(options):
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr("regrow.cli.methods.run", fail)
    with pytest.raises(RuntimeError, match="a fault of ours"):
        main(["methods"])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("trian demo", "unknown command 'trian': did you mean 'train'?"),
        ("train demo --density 5% --show", "sparse.density is a share, not a percentage: got '5%', write 0.05"),
        ("train demo --device cuda", "--device is no key: a run takes the GPU where torch finds one"),
        ("train demo --gpu 0", "CUDA_VISIBLE_DEVICES= in front of the command keeps it on the CPU"),
        ("train demo --start magnitud --show", "unknown sparse.start 'magnitud': did you mean 'magnitude'?"),
        ("train demo --method SET --show", "unknown method 'SET': did you mean 'set'?"),
        (
            "train demo --model timm:resnet18 --model_options.checkpoint_path a.pt --show",
            "model_options.checkpoint_path makes timm load a file or fetch one",
        ),
        (
            "infer nowhere.safetensors",
            "nowhere.safetensors: no such file; write one with regrow export RUN --to nowhere.safetensors",
        ),
    ],
)
def test_what_newcomers_type_is_explained_in_one_line(line, said, capsys):
    assert main(line.split()) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_near_key_comes_without_the_long_list(capsys):
    assert main(["train", "demo", "--densty", "0.1"]) == 2
    assert capsys.readouterr().err == "regrow train: unknown configuration key 'densty': did you mean 'density'?\n"
    assert main(["train", "demo", "--zzz", "0.1"]) == 2
    assert "unknown configuration key 'zzz': `regrow train --help` lists all" in capsys.readouterr().err


def test_help_lists_the_keys_by_group(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    text = capsys.readouterr().out
    for group, key in (
        ("  run\n", "epochs=100"),
        ("  [optimizer]\n", "lr=0.1"),
        ("  [sparse]\n", "density=0.05"),
        ("  [sparse]\n", "execution=auto"),
    ):
        assert key in text.split(group)[1].split("  [")[0]


@pytest.mark.parametrize(
    ("line", "shown"), [("help", "COMMAND"), ("help report", "usage: regrow report"), ("version", regrow.__version__)]
)
def test_help_and_version_work_as_words(line, shown, capsys):
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    assert ended.value.code == 0
    assert shown in capsys.readouterr().out
