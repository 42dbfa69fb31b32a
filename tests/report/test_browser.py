"""The page in a real browser: loads without complaint, asks for nothing, draws everything."""

import json
import os
import re
import shutil
import subprocess

import pytest
from PIL import Image

from regrow.report import write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")

# Written behind the page, which itself has no script: it notes what the browser made of it.
PROBE = """
<script>
const drawings = [...document.querySelectorAll("svg")].map(s => s.getBoundingClientRect());
const images = [...document.querySelectorAll("svg image")];
const asked = performance.getEntriesByType("resource").filter(e => !e.name.startsWith("data:"));
const width = i => { const p = new Image(); p.src = i.getAttribute("href"); return p.decode().then(() => p.width); };
Promise.all(images.map(width)).then(widths => {
  document.body.setAttribute("data-probe", JSON.stringify({
    height: document.documentElement.scrollHeight, overflow: document.documentElement.scrollWidth - innerWidth,
    flat: drawings.filter(r => r.width < 50 || r.height < 50).length, drawings: drawings.length,
    images: widths, asked: asked.map(e => e.name)}));
});
</script>
"""


def browse(page, folder, *options, width=1400):
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        "--virtual-time-budget=5000",
        f"--user-data-dir={folder / 'profile'}",
        f"--window-size={width},2000",
        *options,
        page.as_uri(),
    ]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, env={**os.environ, "HOME": str(folder)}, check=True
    )


@pytest.fixture(scope="module")
def page(convolutional, tmp_path_factory):
    return write_report(convolutional, tmp_path_factory.mktemp("page") / "report.html")


@pytest.mark.parametrize("width", [1400, 520])
def test_the_page_loads_draws_and_asks_for_nothing(page, tmp_path, width):
    probed = tmp_path / "probed.html"
    text, policy = page.read_text(), "default-src 'none'"
    assert policy in text, "scripts are forbidden, but for the probe"
    allowed = text.replace(policy, f"{policy}; script-src 'unsafe-inline'")
    probed.write_text(allowed.replace("</body>", PROBE + "</body>"))
    found = browse(probed, tmp_path, "--dump-dom", width=width)
    assert "CONSOLE" not in found.stderr
    probe = re.search(r'data-probe="([^"]*)"', found.stdout)
    assert probe, found.stderr[-2000:]
    seen = json.loads(probe.group(1).replace("&quot;", '"'))
    assert seen["height"] > 2000
    assert seen["overflow"] <= 0
    assert (seen["drawings"], seen["flat"]) == (12, 0)
    assert seen["images"]
    assert min(seen["images"]) > 1
    assert seen["asked"] == []


def test_a_picture_of_it_is_not_blank(page, tmp_path):
    target = tmp_path / "page.png"
    found = browse(page, tmp_path, f"--screenshot={target}", "--hide-scrollbars")
    assert "CONSOLE" not in found.stderr
    with Image.open(target) as picture:
        assert picture.size == (1400, 2000)
        colours = picture.convert("RGB").getcolors(maxcolors=1 << 24)
    assert len(colours) > 200
