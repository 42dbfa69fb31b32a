"""Build the documentation site: ``python -m docs.tools.build`` (``make docs``).

The sources read well on their own in a repository browser, with links to files outside this folder. Here they are gathered in one place
beside the generated reference, links adapted, and given to MkDocs, which refuses what leads nowhere.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from docs.tools import reference

ROOT = Path(__file__).parents[2]
STAGE = ROOT / "build" / "docs"
_TOP = {
    name: name.lower() for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
}


def stage(target: Path = STAGE) -> Path:
    """Gather all pages and pictures in one folder."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(ROOT / "docs", target, ignore=shutil.ignore_patterns("tools", "__pycache__", "*.py"))
    for name, here in _TOP.items():
        (target / here).write_text(_from_root((ROOT / name).read_text()))
    for picture in (ROOT / "results").rglob("*.png"):
        place = target / picture.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(picture, place)
    for page in target.rglob("*.md"):
        up = "../" * len(page.relative_to(target).parents[:-1])
        page.write_text(_inside(page.read_text(), up))
    (target / "assets").mkdir()
    for asset in ("iframe-worker.js", "style.css"):
        shutil.copy(Path(__file__).parent / asset, target / "assets")
    folder = target / "reference"
    folder.mkdir()
    for name in reference.PAGES:
        (folder / f"{name}.md").write_text(reference.page(name))
    return target


def _from_root(text: str) -> str:
    """A page of the repository's top, moved into the documentation."""
    return re.sub(r"\]\(docs/", "](", _top_links(text))


def _inside(text: str, up: str) -> str:
    """Links that leave the folder lead to what was gathered, those to other files of the repository become plain words; in tables a number
    and its spread stay on one line, as do the cells of most rows of results."""
    text = re.sub(r"\]\((?:\.\./)+(results/[^)]+\.png)\)", rf"]({up}\1)", text)
    for name, here in _TOP.items():
        text = re.sub(rf"\]\((?:\.\./)+{re.escape(name)}", f"]({up}{here}", text)
    text = re.sub(r"(?<!!)\[([^\]]+)\]\((?:\.\./)+(?:results|src|examples|benchmarks|tests)[^)]*\)", r"\1", text)
    return re.sub(r"^\|.*$", lambda row: _together(row[0]), text, flags=re.MULTILINE)


def _together(row: str) -> str:
    row = re.sub(r"(?<=\d) (±|\.\.) ", "\u00a0\\1\u00a0", row)
    return re.sub(
        r"(?<=, window) (?=[\d.]+ \|)|(?<=\| sparse) (?=momentum \|)|(?<=\| sparse,) (?=window)", "\u00a0", row
    )


def _top_links(text: str) -> str:
    for name, here in _TOP.items():
        text = text.replace(f"]({name})", f"]({here})")
    return re.sub(r"\[([^\]]+)\]\((?:LICENSE|CITATION|examples|results|benchmarks|src)[^)]*\)", r"\1", text)


def configuration() -> str:
    """MkDocs' settings with one line for every method, page of the reference, and page that no other line names."""
    text = (Path(__file__).parent / "mkdocs.yml").read_text()
    pages = sorted(path.relative_to(STAGE).as_posix() for path in STAGE.rglob("*.md"))
    folders = {"reference": [f"reference/{name}.md" for name in reference.PAGES]}
    folders["more"] = [
        page for page in pages if "/" not in page and not re.search(rf": {re.escape(page)}$", text, re.MULTILINE)
    ]
    for name, found in folders.items():
        text = text.replace(f"      - {name.upper()}\n", "".join(f"      - {page}\n" for page in found))
    return text.replace("      - METHODS\n", _methods())


def _methods() -> str:
    """One line for every method, in the groups of the front page."""
    paragraphs = re.findall(r"^([A-Z][^:\n]+): (\[.*?)\.$", (STAGE / "index.md").read_text(), re.MULTILINE | re.DOTALL)
    groups = {name: re.findall(r"\((methods/[^)]+)\)", links) for name, links in paragraphs}
    return "".join(
        f"      - {name}:\n" + "".join(f"          - {page}\n" for page in found)
        for name, found in groups.items()
        if found
    )


def main() -> int:
    """Stage, then build strictly."""
    stage()
    settings = STAGE.parent / "mkdocs.yml"
    settings.write_text(configuration())
    # Not --quiet: it also keeps --strict from counting warnings.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(settings)]
    # The theme advertises its successor otherwise.
    status = subprocess.run(command, check=False, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}).returncode
    for page in (ROOT / "site").rglob("*.html"):
        page.write_text(options_whole(page.read_text()))
    return status


def options_whole(html: str) -> str:
    """Options of the command line as words of their own, which the style keeps on one line: browsers break them behind ``--``."""

    def whole(code: re.Match[str]) -> str:
        return re.sub(r"--[\w.-]+", r'<span class="option">\g<0></span>', code[0])

    return re.sub(r"<code>[^<]*--[^<]*</code>", whole, html)


if __name__ == "__main__":
    raise SystemExit(main())
