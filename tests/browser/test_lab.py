"""Notebooks in a real JupyterLab in a real browser: read unrun, run to the end, move a slider.

Needs Chromium or Chrome; without one it is skipped, or fails if MINIKV_REQUIRE_BROWSER=1.
Each notebook runs in a copy of the checkout, so that nothing in it changes.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Page, Request, expect, sync_playwright

pytestmark = [pytest.mark.browser]

REPOSITORY = Path(__file__).resolve().parents[2]
PICTURES = REPOSITORY / "artifacts" / "browser"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
NOTEBOOKS = {"08_seven_stale_pages": "chapter 08: done"}  # and the last line that a full run prints

STARTING = 60  # seconds for the server, and for the kernel
RUNNING = 300  # seconds for all cells

# Read the notebook's state from JupyterLab itself rather than from its looks.
READY = """() => {
    const widget = window.jupyterapp?.shell?.currentWidget;
    const kernel = widget?.context?.isReady && widget.sessionContext?.isReady
        && widget.sessionContext.session?.kernel;
    return kernel?.status === 'idle';
}"""
OUTPUT_TEXT = """() => {
    const cells = window.jupyterapp.shell.currentWidget.context.model.cells;
    const texts = [];
    for (const cell of cells) {
        for (const output of cell.toJSON().outputs ?? []) {
            texts.push([output.text ?? output.data?.['text/plain'] ?? ''].flat().join(''));
        }
    }
    return texts.join('\\n');
}"""
PANEL_TEXT = """slider => {
    const panel = slider.closest('.jp-OutputArea').cloneNode(true);
    panel.querySelectorAll('.widget-readout').forEach(number => number.remove());
    return panel.textContent;
}"""
STDERR = '[data-mime-type="application/vnd.jupyter.stderr"]'


@dataclass
class Watched:
    """A browser page and everything about it that must not happen."""

    page: Page
    left_the_machine: list[str] = field(default_factory=list)
    console_errors: list[str] = field(default_factory=list)

    def listen(self) -> None:
        self.page.on("request", self._request)
        self.page.on("console", lambda said: said.type == "error" and self.console_errors.append(said.text))
        self.page.on("pageerror", lambda error: self.console_errors.append(str(error)))

    def _request(self, request: Request) -> None:
        if not request.url.startswith(("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:")):
            self.left_the_machine.append(request.url)


@pytest.fixture(scope="module")
def browser_path() -> str:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        reason = f"none of {', '.join(BROWSERS)} is installed (Debian: apt-get install chromium)"
        if os.environ.get("MINIKV_REQUIRE_BROWSER") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@pytest.fixture(scope="module")
def lab(browser_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A JupyterLab with its own settings on a copy of the notebooks; gives its URL and that copy."""
    place = tmp_path_factory.mktemp("lab")
    course = place / "course"
    course.mkdir()
    for folder in ("notebooks", "exercises", "assets"):
        if (REPOSITORY / folder).is_dir():
            shutil.copytree(REPOSITORY / folder, course / folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = place / "lab.log"
    with log.open("w") as output:
        server = subprocess.Popen(
            lab_command(port, course), env=lab_environment(place), stdout=output, stderr=subprocess.STDOUT
        )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for_server(server, url, log)
        yield url, course
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()


def lab_command(port: int, course: Path) -> list[str]:
    return [
        *(
            sys.executable,
            "-m",
            "jupyterlab",
            "--no-browser",
            "--allow-root",
            "--ip=127.0.0.1",
            f"--port={port}",
        ),
        *("--ServerApp.port_retries=0", "--IdentityProvider.token=", "--ServerApp.password="),
        *(f"--ServerApp.root_dir={course}", "--LabApp.expose_app_in_browser=True"),
    ]


def lab_environment(place: Path) -> dict[str, str]:
    """The environment of the server, and so of its kernels: nothing of this user's settings or parts."""
    settings = place / "settings"
    settings.mkdir()
    (settings / "overrides.json").write_text("{}")
    labconfig = place / "config" / "labconfig"
    labconfig.mkdir(parents=True)
    (labconfig / "page_config.json").write_text(  # no question about news on the first start
        '{"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": true}}'
    )
    path = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {
        "JUPYTER_CONFIG_DIR": str(place / "config"),
        "JUPYTER_DATA_DIR": str(place / "data"),
        "JUPYTER_RUNTIME_DIR": str(place / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(settings),
        "JUPYTERLAB_WORKSPACES_DIR": str(place / "workspaces"),
        "IPYTHONDIR": str(place / "ipython"),
        "MINIKV_HOME": str(place / "my_minikv"),
        "PYTHONPATH": os.pathsep.join(path),
    }


def wait_for_server(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    end = time.monotonic() + STARTING
    while time.monotonic() < end and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/api/status", timeout=2):
                return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"JupyterLab did not start:\n{log.read_text()[-3000:]}")


@pytest.fixture
def watched(browser_path: str, tmp_path: Path) -> Iterator[Watched]:
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            str(tmp_path / "profile"),
            executable_path=browser_path,
            headless=True,
            viewport={"width": 1280, "height": 1000},
            args=[
                *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
                *("--disable-background-networking", "--disable-component-update"),
            ],
        )
        page = Watched(context.pages[0] if context.pages else context.new_page())
        page.listen()
        yield page
        context.close()


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_in_the_browser(name: str, lab: tuple[str, Path], watched: Watched) -> None:
    url, course = lab
    page = watched.page
    if not (course / "notebooks" / f"{name}.ipynb").exists():
        pytest.fail(f"notebooks/{name}.ipynb does not exist. Build it: python tools/build_course.py --execute")
    PICTURES.mkdir(parents=True, exist_ok=True)

    page.goto(f"{url}/lab/tree/notebooks/{name}.ipynb?reset")
    page.wait_for_function(READY, timeout=STARTING * 1000)
    look_at_it_unrun(page)
    page.screenshot(path=PICTURES / f"{name}-unrun.png")

    run_all_cells(page, NOTEBOOKS[name])
    assert page.locator(STDERR).count() == 0, page.locator(STDERR).first.inner_text()
    assert page.get_by_text("model not found").count() == 0
    assert page.get_by_text("Error displaying widget").count() == 0

    move_the_figures_slider(page)
    page.screenshot(path=PICTURES / f"{name}-figure.png")
    if page.locator(".jp-OutputArea [role=slider]").count():
        move_the_widgets_slider(page)
        page.screenshot(path=PICTURES / f"{name}-widget.png")

    assert watched.left_the_machine == []
    assert watched.console_errors == []


def look_at_it_unrun(page: Page) -> None:
    """Before anything runs, and before anybody trusts the file, the table must teach already."""
    caption = page.locator(".jp-OutputArea table caption").first
    caption.scroll_into_view_if_needed()
    expect(caption).to_be_visible()
    expect(caption).not_to_have_text(re.compile(r"^\s*$"))  # waits: the notebook draws a cell when it comes into view


def run_all_cells(page: Page, last_line: str) -> None:
    # The last line may stand in the stored outputs: empty them, so that only this run can print it.
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:clear-all-cell-outputs')")
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); }")
    end = time.monotonic() + RUNNING
    while time.monotonic() < end:
        text = page.evaluate(OUTPUT_TEXT)
        if last_line in text:
            page.wait_for_function(READY, timeout=STARTING * 1000)
            return
        time.sleep(0.5)
    page.screenshot(path=PICTURES / "did-not-finish.png")
    pytest.fail(f"{last_line!r} was not printed within {RUNNING} s. The end of the outputs:\n{text[-3000:]}")


def move_the_figures_slider(page: Page) -> None:
    """Drag the slider of the first figure that has one to its far end: the figure must change."""
    slider = page.locator(".jp-OutputArea .js-plotly-plot .slider-container").first
    slider.scroll_into_view_if_needed()
    figure = page.locator(".jp-OutputArea .js-plotly-plot", has=page.locator(".slider-container")).first
    expect(figure.locator(".slider-grip-rect").first).to_be_visible()
    before = figure.inner_text()
    for _ in range(5):  # while the page is still growing, the grip moves away under the mouse
        grip = box(page, figure.locator(".slider-grip-rect").first.bounding_box())
        page.wait_for_timeout(500)
        if grip != box(page, figure.locator(".slider-grip-rect").first.bounding_box()):
            continue
        rail = box(page, figure.locator(".slider-rail-rect").first.bounding_box())
        at_the_end = grip[0] > rail[0] + rail[2] / 2
        target = rail[0] + rail[2] * (0.02 if at_the_end else 0.98)
        page.mouse.move(grip[0] + grip[2] / 2, grip[1] + grip[3] / 2)
        page.mouse.down()
        page.mouse.move(target, grip[1] + grip[3] / 2, steps=10)
        page.mouse.up()
        page.wait_for_timeout(1000)
        if figure.inner_text() != before:
            return
        slider.scroll_into_view_if_needed()
    pytest.fail("the figure's text is the same at both ends of its slider")


def move_the_widgets_slider(page: Page) -> None:
    """Move the first widget slider with the arrow keys: what its panel says beside it must change."""
    slider = page.locator(".jp-OutputArea [role=slider]").first
    slider.scroll_into_view_if_needed()
    before = slider.evaluate(PANEL_TEXT)
    slider.focus()
    for key in ("ArrowRight", "ArrowLeft", "ArrowLeft"):  # it may stand at its end
        page.keyboard.press(key)
        page.wait_for_timeout(1000)
        if slider.evaluate(PANEL_TEXT) != before:
            return
    pytest.fail("the arrow keys change nothing in the slider's panel")


def box(page: Page, found: dict[str, float] | None) -> tuple[float, float, float, float]:
    if found is None:
        page.screenshot(path=PICTURES / "no-slider.png")
        pytest.fail("the figure's slider is not on the page")
    return found["x"], found["y"], found["width"], found["height"]
