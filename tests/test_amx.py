"""AMX that traps is found out by a child process, once per machine, and avoided; stand-ins play processor and child."""

import json
import os
import subprocess
import sys

import pytest

import regrow
from regrow import amx, amx_probe
from regrow.amx_probe import Verdict
from regrow.cli import doctor

FLAGS = "fpu sse2 avx2 avx512f avx512_bf16"
SAYS_FINE = f"print({amx_probe.SUCCESS!r})"
DIES = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
REFUSES = "import sys; sys.exit('RuntimeError: could not create a primitive')"
HANGS = "import time; time.sleep(60)"
UNLESS_LIMITED = "import os\nif os.environ.get('ONEDNN_MAX_CPU_ISA') != {limit!r}:\n    {trouble}\n" + SAYS_FINE


@pytest.fixture(autouse=True)
def _no_limit(monkeypatch, tmp_path):
    monkeypatch.setenv("REGROW_CACHE", str(tmp_path / "cache"))
    for name in amx.NAMES:
        # Set first, so that what a test leaves behind is removed.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.fixture
def processor(monkeypatch, tmp_path):
    """A processor with these flags."""

    def announce(flags):
        path = tmp_path / "cpuinfo"
        block = f"processor : 0\nmodel name : Test CPU\nflags : {flags}\n"
        path.write_text(f"{block}\n{block}")
        monkeypatch.setattr(amx, "CPUINFO", str(path))

    return announce


@pytest.fixture
def child(monkeypatch, tmp_path):
    """A child that runs this code instead of torch, and counts its runs."""
    runs = tmp_path / "runs"
    runs.touch()

    def play(code):
        counted = f"open({str(runs)!r}, 'a').write('x')\n{code}"
        monkeypatch.setattr(amx_probe, "COMMAND", (sys.executable, "-c", counted))
        return lambda: len(runs.read_text())

    return play


def trouble(code, limit="AVX512_CORE_BF16"):
    return UNLESS_LIMITED.format(limit=limit, trouble=code)


def test_nothing_is_tried_where_no_amx_is_announced(processor, child):
    processor(FLAGS)
    runs = child(DIES)
    amx.keep_off_traps()
    assert runs() == 0
    assert amx.VARIABLE not in os.environ
    assert amx_probe.describe() == "not announced by this processor"


def test_without_a_cpuinfo_nothing_is_announced(monkeypatch, tmp_path):
    monkeypatch.setattr(amx, "CPUINFO", str(tmp_path / "none"))
    assert not amx.announced()


def test_amx_that_works_is_left_alone_and_tried_once(processor, child):
    processor(f"{FLAGS} amx_bf16 amx_tile")
    runs = child(SAYS_FINE)
    amx.keep_off_traps()
    amx.keep_off_traps()
    assert runs() == 1
    assert amx.VARIABLE not in os.environ
    assert amx_probe.describe() == "AMX is announced, and torch's bfloat16 products work"


@pytest.mark.parametrize(
    ("code", "failure"), [(DIES, "SIGILL"), (REFUSES, "could not create a primitive"), (HANGS, "no answer in 2 s")]
)
def test_amx_that_traps_is_avoided_and_said_in_one_line(processor, child, caplog, monkeypatch, code, failure):
    monkeypatch.setattr(amx_probe, "SECONDS", 2.0)
    processor(f"{FLAGS} amx_tile")
    runs = child(trouble(code))
    amx.keep_off_traps()
    assert os.environ[amx.VARIABLE] == "AVX512_CORE_BF16"
    (message,) = caplog.messages
    assert failure in message
    assert "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16" in message
    assert "\n" not in message
    assert amx_probe.describe() == message
    assert runs() == 2
    monkeypatch.delenv(amx.VARIABLE)
    amx.keep_off_traps(probe=False)
    assert os.environ[amx.VARIABLE] == "AVX512_CORE_BF16", "known by now"
    assert runs() == 2


def test_the_next_limit_is_taken_where_the_first_does_not_help(processor, child):
    processor(f"{FLAGS} amx_tile")
    child(trouble(DIES, "AVX512_CORE"))
    amx.keep_off_traps()
    assert os.environ[amx.VARIABLE] == "AVX512_CORE"


def test_where_no_limit_helps_amx_is_not_blamed_and_nothing_is_kept(processor, child, caplog, tmp_path):
    processor(f"{FLAGS} amx_tile")
    child("import no_such_torch")
    amx.keep_off_traps()
    assert amx.VARIABLE not in os.environ
    assert "under every instruction set tried: ModuleNotFoundError" in caplog.text
    assert not (tmp_path / "cache").exists()
    assert amx_probe.describe() == "announced, could not be tried"


@pytest.mark.parametrize("name", amx.NAMES)
def test_a_users_limit_wins(processor, child, monkeypatch, name):
    processor(f"{FLAGS} amx_tile")
    runs = child(DIES)
    monkeypatch.setenv(name, "AVX2")
    amx.keep_off_traps()
    assert runs() == 0
    assert {key: os.environ.get(key) for key in amx.NAMES} == {**dict.fromkeys(amx.NAMES), name: "AVX2"}
    assert amx_probe.describe() == f"announced; torch is limited by your {name}=AVX2"


def test_without_a_probe_only_what_is_known_counts(processor, child):
    processor(f"{FLAGS} amx_tile")
    runs = child(trouble(DIES))
    amx.keep_off_traps(probe=False)
    assert runs() == 0
    assert amx.VARIABLE not in os.environ


def test_using_a_public_name_tries(processor, child):
    processor(f"{FLAGS} amx_tile")
    runs = child(trouble(DIES))
    _ = regrow.sparsify
    assert runs() == 2
    assert os.environ[amx.VARIABLE] == "AVX512_CORE_BF16"


def test_another_kernel_torch_or_processor_is_tried_anew(processor, child, monkeypatch):
    processor(f"{FLAGS} amx_tile")
    runs = child(SAYS_FINE)
    amx.keep_off_traps()
    monkeypatch.setattr(amx_probe.platform, "release", lambda: "7.0")
    amx.keep_off_traps()
    monkeypatch.setattr(amx_probe, "version", lambda package: "3.0")
    amx.keep_off_traps()
    processor(f"{FLAGS} amx_tile amx_int8")
    amx.keep_off_traps()
    assert runs() == 4


@pytest.mark.parametrize("content", ["{", "[]", '{"limit": "SSE41"}', '{"other": 1}'])
def test_a_damaged_answer_is_found_anew(processor, child, content):
    processor(f"{FLAGS} amx_tile")
    runs = child(SAYS_FINE)
    amx.keep_off_traps()
    amx_probe._cache().write_text(content)
    amx.keep_off_traps()
    assert runs() == 2
    assert json.loads(amx_probe._cache().read_text()) == {"limit": None, "failure": ""}


def test_an_answer_that_cannot_be_kept_is_used_and_said(processor, child, caplog, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("REGROW_CACHE", str(tmp_path / "file"))
    processor(f"{FLAGS} amx_tile")
    child(trouble(DIES))
    amx.keep_off_traps()
    assert os.environ[amx.VARIABLE] == "AVX512_CORE_BF16"
    assert "was not kept" in caplog.messages[0]


def test_doctor_says_what_was_found(processor, child, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    processor(f"{FLAGS} amx_tile")
    child(trouble(DIES))
    amx.keep_off_traps()
    assert doctor.run(None) == 0
    assert str(Verdict("AVX512_CORE_BF16", "SIGILL")) in capsys.readouterr().out


def test_the_real_child_multiplies():
    done = subprocess.run(amx_probe.COMMAND, capture_output=True, text=True, check=False, timeout=300)
    failed_by_trap = amx.announced() and done.returncode
    assert failed_by_trap or done.stdout.strip() == amx_probe.SUCCESS, done.stderr


def test_importing_the_package_is_cheap():
    code = "import sys, regrow; print([name for name in ('torch', 'subprocess', 'json') if name in sys.modules])"
    environment = {**os.environ, amx.VARIABLE: "AVX2"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "[]"
