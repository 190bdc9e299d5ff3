"""The HTML report in a real browser, where one is installed: no sideways scrolling, and the gallery script runs."""

from __future__ import annotations

import html
import re
import shutil
import subprocess

import pytest
from sample_result import HOSTILE, sample, write_folder

from audit.sinks import report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")]
WIDTHS = (360, 580, 1280)
# Frames give exact widths, which a headless window does not below 500 pixels.
FRAME = '<iframe style="border:0;width:{width}px;height:700px" srcdoc="{page}"></iframe>'
MEASURE = """<script>addEventListener("load", function () {
  document.title = [].map.call(document.querySelectorAll("iframe"), function (frame) {
    var page = frame.contentDocument, tools = page.getElementById("tools");
    return page.documentElement.scrollWidth + "," + (tools ? !tools.hidden : "none");
  }).join(" ");
});</script>"""


def measured(folder, text):
    """(scroll width, whether the gallery's filters are shown) per width."""
    wrapper = folder / "wrapper.html"
    frames = "".join(FRAME.format(width=width, page=html.escape(text)) for width in WIDTHS)
    wrapper.write_text(f"<!doctype html><title>unread</title><body>{frames}{MEASURE}", encoding="utf-8")
    done = subprocess.run(
        [
            str(CHROMIUM),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--hide-scrollbars",
            f"--user-data-dir={folder / 'profile'}",
            "--virtual-time-budget=5000",
            "--dump-dom",
            wrapper.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    found = re.search(r"<title>([\d,a-z ]+)</title>", done.stdout)
    if found is None:
        pytest.skip("this Chromium cannot run here")
    return [(int(width), shown) for width, shown in (item.split(",") for item in found[1].split())]


@pytest.mark.parametrize(
    "options",
    [{"models": 1}, {"models": 3, "reference": True}, {"models": 8}, {"models": 2, "names": (HOSTILE, "w" * 300)}],
    ids=["one", "three", "eight", "hostile"],
)
def test_no_width_scrolls_sideways(tmp_path, options):
    folder = write_folder(tmp_path / "result", sample(**options))
    text = report.render(folder, pdf=False).html.read_text(encoding="utf-8")
    assert measured(tmp_path, text) == [(width, "true") for width in WIDTHS]
