"""The report in a real browser: Debian's Chromium, without a network. `make browser` installs it."""

import io
import os
import shutil

import numpy as np
import pytest
from PIL import Image

from vcrl.bench.report import report

pytestmark = pytest.mark.slow
SORT = "#games-atari-atari100k th:nth-child({}) button"
COLUMN = "rows => rows.filter(r => !r.hidden).map(r => r.cells[{}].innerText)"
ROWS = "#games-atari-atari100k tbody tr"


@pytest.fixture(scope="module")
def chromium():
    from playwright.sync_api import sync_playwright

    found = shutil.which(os.environ.get("CHROMIUM", "chromium"))
    assert found, "no chromium: run `make browser`"
    with sync_playwright() as playwright:
        # A sandbox needs rights that a container seldom has; the page is our own.
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium, make_run, tmp_path):
    """The page of eight runs, opened from disk; what it said, asked for and threw is checked at the end."""
    rng = np.random.default_rng(0)
    for t, task in enumerate(("pong", "boxing", "alien", "breakout")):
        for i, method in enumerate(("spr", "vcr")):
            make_run(f"{task}-{method}", task, method, tuple(10.0 * t + i + rng.normal(size=5)))
    path = report([tmp_path / "runs"], tmp_path / "out")[1][0]
    complaints: list[str] = []

    def visit(width: int = 1200, scheme: str = "light"):
        page = chromium.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
        page.on("console", lambda message: complaints.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on(
            "request",
            lambda asked: (
                complaints.append(f"asked for {asked.url}")
                if not asked.url.startswith(("data:", f"file://{path}"))
                else None
            ),
        )
        page.goto(f"file://{path}")
        return page

    yield visit
    assert not complaints


def names(page, column=0):
    return page.eval_on_selector_all(ROWS, COLUMN.format(column))


def pixels(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"), dtype=int)


def test_sorting_by_click(opened):
    page = opened()
    before = names(page)
    page.click(SORT.format(1))
    assert names(page) == sorted(before)
    heading = page.locator(SORT.format(1)).locator("xpath=..")
    assert heading.get_attribute("aria-sort") == "ascending"
    page.click(SORT.format(1))
    assert names(page) == sorted(before, reverse=True)
    assert heading.get_attribute("aria-sort") == "descending"
    page.click(SORT.format(3))  # scores, as numbers
    scores = [float(text.replace(",", "")) for text in names(page, 2)]
    assert scores == sorted(scores) and min(scores) < 10 < max(scores)
    assert heading.get_attribute("aria-sort") == "none", "one column at a time"


def test_sorting_by_keyboard(opened):
    page = opened()
    for _ in range(200):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.closest('table')?.id") == "games-atari-atari100k":
            break
    else:
        pytest.fail("the headings cannot be reached by keyboard")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none", "who uses the keyboard must see where it is"
    before = names(page)
    page.keyboard.press("Enter")
    page.keyboard.press("Space")
    assert names(page) == sorted(before, reverse=True)


def test_filtering(opened):
    page = opened()
    form = page.locator("form[data-table=games-atari-atari100k]")
    form.locator("input").fill("pong")
    assert names(page) == ["pong", "pong"]
    assert form.locator("output").inner_text() == "2 of 8 rows"
    form.locator("select").select_option("vcr")
    assert (names(page), names(page, 1)) == (["pong"], ["vcr"])
    form.locator("input").fill("nothing like it")
    assert names(page) == [] and form.locator("output").inner_text() == "0 of 8 rows"
    form.locator("input").fill("")
    form.locator("input").press("Enter")
    assert len(names(page)) == 4, "Enter leaves the page where it is"


def test_every_seed_unfolds(opened):
    page = opened()
    seeds = page.locator(f"{ROWS}:first-child details")
    assert "0: " not in seeds.inner_text()
    seeds.locator("summary").press("Enter")
    assert "0: " in seeds.inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1200])
def test_the_page_fits_its_window(opened, width, scheme):
    page = opened(width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for box in page.query_selector_all("form, input, select, button, summary, h1, h2, h3, p"):
        held = box.evaluate("e => e.closest('.scroll') !== null") or box.bounding_box()
        if held not in (True, None):
            assert held["x"] >= 0 and held["x"] + held["width"] <= width + 1


def test_light_and_dark(opened):
    def contrast(scheme):
        page = opened(scheme=scheme)
        found = page.evaluate(
            "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
        )
        ink, paper = (luminance(text) for text in found)
        assert (max(ink, paper) + 0.05) / (min(ink, paper) + 0.05) > 7
        return pixels(page.screenshot()).mean(), paper

    (light, white), (dark, black) = contrast("light"), contrast("dark")
    assert light > 200 and dark < 80 and white > 0.9 and black < 0.05


def luminance(text: str) -> float:
    """Of a colour such as rgb(1, 2, 3), as WCAG defines it."""
    parts = [int(part) / 255 for part in text.removeprefix("rgb(").removesuffix(")").split(",")]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_figures_are_not_empty(opened, scheme):
    page = opened(scheme=scheme)
    images = page.query_selector_all("figure img")
    assert len(images) == 6
    for image in images:
        assert image.evaluate("i => i.complete && i.naturalWidth > 100")
        assert len(image.get_attribute("alt") or "") > 20
        image.scroll_into_view_if_needed()
        shot = pixels(image.screenshot())
        colours = np.unique(shot.reshape(-1, 3), axis=0)
        drawn = (np.abs(shot - 255).sum(axis=2) > 60).mean()
        saturated = (shot.max(axis=2) - shot.min(axis=2) > 40).mean()
        assert len(colours) > 30 and 0.005 < drawn < 0.9 and saturated > 0.0005, image.get_attribute("alt")
