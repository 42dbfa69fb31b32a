import gzip
import http.server
import os
import stat
import sys
import threading
from pathlib import Path

import pytest

from regrow.data import sources
from regrow.data.errors import SourceError
from regrow.data.progress import silent
from regrow.data.sources import LocalFolder, Mirror, NpmPackage, PipPackage

NAMES = ("a-idx1-ubyte", "b-idx1-ubyte")


def read_archive(path):
    yield "from-archive", path.read_bytes()


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves a compressed file, a short answer, or an error."""

    def do_GET(self):
        body = gzip.compress(b"content")
        if "absent" in self.path:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body) + (5 if "short" in self.path else 0)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def address(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_mirror_downloads_and_decompresses(address, tmp_path):
    reports = []
    mirror = Mirror(address, ("x.gz",))
    assert dict(mirror.fetch(tmp_path, lambda *report: reports.append(report))) == {"x": b"content"}
    assert reports[-1][0] == "x.gz"
    assert reports[-1][1] == reports[-1][2]
    assert mirror.label == address


def test_mirror_with_an_archive(address, tmp_path):
    files = dict(Mirror(address, ("x.tar.gz",), read_archive).fetch(tmp_path, silent))
    assert files == {"from-archive": gzip.compress(b"content")}


def test_mirror_failures(address, tmp_path):
    with pytest.raises(SourceError, match="answered 404 Not Found"):
        list(Mirror(address, ("absent.gz",)).fetch(tmp_path, silent))
    with pytest.raises(SourceError, match=r"the download failed|ended after \d+ of \d+ bytes"):
        list(Mirror(address, ("short.gz",)).fetch(tmp_path, silent))
    with pytest.raises(SourceError, match="no connection"):
        list(Mirror("http://127.0.0.1:1/", ("x.gz",)).fetch(tmp_path, silent))


@pytest.mark.parametrize("place", [".", "sub"])
@pytest.mark.parametrize("form", ["{}", "{}.gz", "dotted"])
def test_local_files(tmp_path, place, form):
    folder = tmp_path / place
    folder.mkdir(exist_ok=True)
    for name in NAMES:
        path = folder / (name.replace("-idx", ".idx") if form == "dotted" else form.format(name))
        path.write_bytes(gzip.compress(name.encode()) if path.suffix == ".gz" else name.encode())
    source = LocalFolder(tmp_path, NAMES, {}, ("sub",))
    assert dict(source.fetch(tmp_path, silent)) == {name: name.encode() for name in NAMES}


def test_local_archive(tmp_path):
    (tmp_path / "known.tgz").write_bytes(b"archive")
    source = LocalFolder(tmp_path, NAMES, {"known.tgz": read_archive})
    assert dict(source.fetch(tmp_path, silent)) == {"from-archive": b"archive"}


def test_local_failures(tmp_path):
    with pytest.raises(SourceError, match="no such folder"):
        list(LocalFolder(tmp_path / "absent", NAMES, {}).fetch(tmp_path, silent))
    (tmp_path / NAMES[0]).write_bytes(b"1")
    with pytest.raises(SourceError, match=r"neither all of a-idx1-ubyte, b-idx1-ubyte nor known\.tgz"):
        list(LocalFolder(tmp_path, NAMES, {"known.tgz": read_archive}).fetch(tmp_path, silent))
    (tmp_path / f"{NAMES[1]}.gz").write_bytes(b"\x1f\x8bbroken")
    with pytest.raises(SourceError, match="damaged gzip file"):
        list(LocalFolder(tmp_path, NAMES, {}).fetch(tmp_path, silent))


@pytest.fixture
def fake_npm(tmp_path, monkeypatch):
    """Put a program called npm first on the path; returns a function that sets what it does."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def does(script):
        program = folder / "npm"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    return does


def test_npm(fake_npm, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    fake_npm('echo "$@" > package.tgz')
    files = dict(NpmPackage("some-data@1.0.0", read_archive).fetch(work, silent))
    assert files == {"from-archive": b"pack --ignore-scripts some-data@1.0.0\n"}


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo note >&2; echo 'npm error 404 not found' >&2; exit 1", "the client failed: npm error 404 not found"),
        ("exit 3", "the client failed: no message"),
        ("true", "the client left 0 files"),
    ],
)
def test_npm_failures(fake_npm, tmp_path, script, message):
    fake_npm(script)
    with pytest.raises(SourceError, match=message):
        list(NpmPackage("x@1", read_archive).fetch(tmp_path, silent))


def test_npm_that_never_answers(fake_npm, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "PACKAGE_SECONDS", 0.2)
    fake_npm("exec sleep 20")
    with pytest.raises(SourceError, match=r"no answer within 0\.2 s"):
        list(NpmPackage("x@1", read_archive).fetch(tmp_path, silent))


def test_npm_is_not_installed(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SourceError, match="npm client is not installed"):
        list(NpmPackage("x@1", read_archive).fetch(tmp_path, silent))


def test_pip(tmp_path, monkeypatch):
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\necho "$@" > some.whl\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    files = dict(PipPackage("some-data==1.0", read_archive).fetch(tmp_path, silent))
    assert files["from-archive"].startswith(b"-m pip download --no-deps --only-binary :all:")
    assert files["from-archive"].endswith(b"some-data==1.0\n")


def test_pip_cannot_be_started(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(Path(tmp_path) / "absent"))
    with pytest.raises(SourceError, match="could not be started"):
        list(PipPackage("x==1", read_archive).fetch(tmp_path, silent))
