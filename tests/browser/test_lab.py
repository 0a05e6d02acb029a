"""Notebooks in a real JupyterLab in a real browser: read unrun, run to the end, move every slider.

Needs Chromium or Chrome; without one it is skipped, or fails if MINIKV_REQUIRE_BROWSER=1.
Each notebook runs in a copy of the checkout, so that nothing in it changes. `make test` takes three of them,
`make test-more` the others.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Locator, Page, Request, expect, sync_playwright

from minikv.viz.window_panel import ON_ITS_WAY

pytestmark = [pytest.mark.browser]

REPOSITORY = Path(__file__).resolve().parents[2]
PICTURES = REPOSITORY / "artifacts" / "browser"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ALWAYS = {"notebooks/02_", "notebooks/05_", "notebooks/08_"}  # those with a live panel
NOTEBOOKS = [
    path.relative_to(REPOSITORY)
    for folder in ("notebooks", "exercises")
    for path in sorted((REPOSITORY / folder).glob("*.ipynb"))
]

STARTING = 60  # seconds for the server, and for the kernel
RUNNING = 300  # seconds for all cells
READABLE = 60  # of 255: how far ink and ground must be apart

# Read the notebook's state from JupyterLab itself rather than from its looks.
READY = """() => {
    const widget = window.jupyterapp?.shell?.currentWidget;
    const kernel = widget?.context?.isReady && widget.sessionContext?.isReady
        && widget.sessionContext.session?.kernel;
    return kernel?.status === 'idle';
}"""
# How many code cells have not run to their end since the outputs were cleared.
NOT_RUN = """() => {
    const cells = window.jupyterapp.shell.currentWidget.context.model.cells;
    return [...cells].filter(cell => cell.type === 'code' && cell.sharedModel.getSource().trim()
        && cell.executionCount === null).length;
}"""
FAILED = """() => {
    const cells = window.jupyterapp.shell.currentWidget.context.model.cells;
    const outputs = [...cells].flatMap(cell => cell.toJSON().outputs ?? []);
    return outputs.filter(output => output.output_type === 'error').map(output => `${output.ename}: ${output.evalue}`);
}"""
# Cells that hold a table with a caption, and whether their output is folded.
TABLES = """() => [...window.jupyterapp.shell.currentWidget.context.model.cells].map((cell, index) => ({
    index,
    folded: Boolean(cell.toJSON().metadata?.jupyter?.outputs_hidden),
    captions: (cell.toJSON().outputs ?? []).filter(output => [output.data?.['text/html'] ?? ''].flat().join('')
        .includes('<caption')).length,
})).filter(cell => cell.captions)"""
# The letters in a figure, each with its place in it: left, top, right, bottom.
LABELS = """figure => {
    const own = figure.getBoundingClientRect();
    return [...figure.querySelectorAll('.plot text, .heatmap-label, .textpoint text, .bartext, .annotation-text')]
        .filter(text => text.textContent.trim())
        .map(text => [text, text.getBoundingClientRect()])
        .filter(([_, box]) => box.width && box.left >= own.left && box.right <= own.right
            && box.top >= own.top && box.bottom <= own.bottom)
        .map(([text, box]) => [text.textContent, Math.floor(box.left - own.left), Math.floor(box.top - own.top),
            Math.ceil(box.right - own.left), Math.ceil(box.bottom - own.top)]);
}"""
SCROLL_TO = "index => window.jupyterapp.shell.currentWidget.content.scrollToItem(index)"
UNFOLD = """index => {
    const cell = window.jupyterapp.shell.currentWidget.content.widgets[index];
    cell.outputHidden = false;
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


@contextmanager
def served(place: Path, *options: str, **changes: str | None) -> Iterator[str]:
    """A JupyterLab with its own settings on a copy of the notebooks, in a path that some programs do not expect."""
    course = place / "mein Kürs"
    course.mkdir()
    for folder in ("notebooks", "exercises", "assets"):
        shutil.copytree(REPOSITORY / folder, course / folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {name: value for name, value in {**lab_environment(place), **changes}.items() if value is not None}
    log = place / "lab.log"
    with log.open("w") as output:
        command = [*lab_command(port, course), *options]
        server = subprocess.Popen(command, env=env, stdout=output, stderr=subprocess.STDOUT)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for_server(server, url, log)
        yield url
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()


@pytest.fixture(scope="module")
def lab(browser_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("lab")) as url:
        yield url


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


def marked(path: Path) -> Any:
    always = any(str(path).startswith(start) for start in ALWAYS)
    return pytest.param(path, id=f"{path.parent.name}-{path.stem}", marks=[] if always else [pytest.mark.more])


@pytest.mark.parametrize("path", [marked(path) for path in NOTEBOOKS])
def test_a_notebook_in_the_browser(path: Path, lab: str, watched: Watched) -> None:
    page = watched.page
    shown = f"{path.parent.name}-{path.stem}"
    PICTURES.mkdir(parents=True, exist_ok=True)

    page.goto(f"{lab}/lab/tree/{path.as_posix()}?reset")
    page.wait_for_function(READY, timeout=STARTING * 1000)
    look_at_it_unrun(page, lesson=path.parent.name == "notebooks")
    page.screenshot(path=PICTURES / f"{shown}-unrun.png")

    run_all_cells(page, shown)
    assert page.locator(STDERR).count() == 0, page.locator(STDERR).first.inner_text()
    assert page.get_by_text("model not found").count() == 0
    assert page.get_by_text("Error displaying widget").count() == 0

    if page.locator(".jp-OutputArea .js-plotly-plot .slider-container").count():
        move_the_figures_slider(page)
        page.screenshot(path=PICTURES / f"{shown}-figure.png")
    figures_in_grey(page, shown)
    live = live_cells(path)
    if live:
        move_the_widgets_sliders(page, live)
        page.screenshot(path=PICTURES / f"{shown}-live.png")

    assert watched.left_the_machine == []
    assert watched.console_errors == []


@pytest.mark.more
def test_a_server_without_the_parts_for_figures(tmp_path: Path, watched: Watched) -> None:
    """On a hub the server's environment may lack what the kernel's has: preflight says which side lacks what."""
    with served(tmp_path, "--LabApp.labextensions_path=[]", MINIKV_CI=None) as url:
        watched.page.goto(f"{url}/lab/tree/notebooks/00_preflight.ipynb?reset")
        watched.page.wait_for_function(READY, timeout=STARTING * 1000)
        run_all_cells(watched.page, "no-extensions")
        said = " ".join(watched.page.evaluate(OUTPUT_TEXT).split())
    assert "WARN figures (server)" in said and "lacks plotly" in said and "anywidget" in said, said
    assert "Install these where Jupyter itself is installed (not in the kernel)" in said and "You can start." in said


def live_cells(path: Path) -> list[int]:
    cells = json.loads((REPOSITORY / path).read_text(encoding="utf-8"))["cells"]
    return [index for index, cell in enumerate(cells) if "live" in cell["metadata"].get("tags", [])]


def cell_at(page: Page, index: int) -> Locator:
    """Bring a cell into view: JupyterLab draws a cell when it comes there."""
    page.evaluate(SCROLL_TO, index)
    cell = page.locator(f".jp-Notebook .jp-Cell[data-windowed-list-index='{index}']")
    expect(cell).to_be_visible()
    cell.scroll_into_view_if_needed()
    return cell


def look_at_it_unrun(page: Page, lesson: bool) -> None:
    """Before anything runs, and before anybody trusts the file, each table must teach already.

    What answers a prediction is folded, and says so; one click shows it.
    """
    tables = page.evaluate(TABLES)
    assert tables or not lesson, "a lesson has a picture, and each picture has a table with a caption"
    for found in tables:
        cell = cell_at(page, found["index"])
        if found["folded"]:
            placeholder = cell.locator(".jp-Placeholder-content").first
            expect(placeholder).to_be_visible()
            placeholder.click()
        caption = cell.locator("table caption").first
        expect(caption).to_be_visible()
        expect(caption).not_to_have_text(re.compile(r"^\s*$"))


def run_all_cells(page: Page, shown: str) -> None:
    # Outputs may be stored: empty them, so that only this run can fill them.
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:clear-all-cell-outputs')")
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); }")
    end = time.monotonic() + RUNNING
    left = failed = None
    while time.monotonic() < end and not failed and left != 0:
        time.sleep(0.5)
        left, failed = page.evaluate(NOT_RUN), page.evaluate(FAILED)
    if failed or left:
        page.screenshot(path=PICTURES / f"{shown}-did-not-finish.png")
        said = page.evaluate(OUTPUT_TEXT)[-3000:]
        pytest.fail(f"{left} cells were not run within {RUNNING} s; errors: {failed}\n{said}")
    page.wait_for_function(READY, timeout=STARTING * 1000)


def figures_in_grey(page: Page, shown: str) -> None:
    """Without colours the letters, words and patterns in every figure can still be read."""
    style = page.add_style_tag(content="html { filter: grayscale(1); }")
    figures = page.locator(".jp-OutputArea .js-plotly-plot")
    for number in range(figures.count()):
        figure = figures.nth(number)
        figure.scroll_into_view_if_needed()
        picture = Image.open(BytesIO(figure.screenshot(path=PICTURES / f"{shown}-grey-{number}.png"))).convert("RGB")
        assert not any(max(pixel) - min(pixel) > 8 for _count, pixel in picture.getcolors(2**24)), (
            "the page is not grey"
        )
        grey = picture.convert("L")
        labels = figure.evaluate(LABELS)
        assert labels, f"figure {number} says nothing in letters"
        for text, *around in labels[:200]:
            low, high = grey.crop(tuple(around)).getextrema()
            assert high - low >= READABLE, f"{text!r} in figure {number} cannot be read without colours"
    style.evaluate("element => element.remove()")


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


def move_the_widgets_sliders(page: Page, live: list[int]) -> None:
    """Move each slider of each live panel with the arrow keys: what its panel says beside it must change."""
    for index in live:
        sliders = cell_at(page, index).locator(".jp-OutputArea [role=slider]")
        expect(sliders.first).to_be_visible()
        for number in range(sliders.count()):
            move_by_keys(page, sliders.nth(number))


def move_by_keys(page: Page, slider: Locator) -> None:
    slider.scroll_into_view_if_needed()
    before = slider.evaluate(PANEL_TEXT)
    slider.focus()
    for key in ("ArrowRight", "ArrowLeft", "ArrowLeft"):  # it may stand at its end
        page.keyboard.press(key)
        page.wait_for_timeout(1000)
        if slider.evaluate(PANEL_TEXT) != before:
            panel = slider.locator("xpath=ancestor::*[contains(@class, 'jp-OutputArea')][1]")
            expect(panel).not_to_contain_text(ON_ITS_WAY, timeout=RUNNING * 1000)
            expect(panel).not_to_contain_text("The run ends early")
            return
    pytest.fail("the arrow keys change nothing in the slider's panel")


def box(page: Page, found: dict[str, float] | None) -> tuple[float, float, float, float]:
    if found is None:
        page.screenshot(path=PICTURES / "no-slider.png")
        pytest.fail("the figure's slider is not on the page")
    return found["x"], found["y"], found["width"], found["height"]
