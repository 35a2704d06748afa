"""Reports in a real browser: wide and narrow, light and dark, by keyboard.

PARTWISE_SCREENSHOTS names a folder to keep the pictures in.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from partwise.reports.report import render_report
from tests.lazily import Lazily
from tests.reports.conftest import LedgerMaker, at

sync_api = Lazily("playwright.sync_api")
# Within a container: as root, with little shared memory, and without a GPU, which it would play.
ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
VIEWS = [(width, scheme) for width in (1280, 400) for scheme in ("light", "dark")]
LONG = "a_key_without_any_blank_" * 12

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tab(chromium: str) -> Iterator[Any]:
    """One page for all tests: a window takes longer to open than a report does.

    `opened` sets all of it that a test can change.
    """
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield browser.new_page()
        browser.close()


def mixed(count: int) -> list[dict]:
    """Partitions of many kinds, with names, messages and numbers of any length."""
    rows = []
    for i in range(count):
        seconds = 0.01 * (1 + i * 7919 % 97)
        row = {
            "key": f"store-{i:03d}" if i % 11 else f"{LONG}{i} <b>東京</b>",
            "shard": i % 16,
            "host": f"node-{i % 16 % 3}.example/{i % 16 % 5}",
            "rows": 10 + i * i % 9000,
            "seconds": seconds,
            "finished_at": at(i * 0.7),
            "peak_memory_bytes": 80_000_000 + i * 100_000,
            "metrics": {"rmse": seconds * 3, "r2": 1 - seconds / 2, "n" * 90: i, "same": 1.0},
        }
        if i % 7 == 0:
            error = {"error_type": "my.Error", "error_message": f"no {LONG} " * (1 + i % 4 * 20)}
            row |= {"status": "FAILED", "metrics": {}, **error, "error_fingerprint": f"f{i % 4}"}
        elif i % 13 == 0:
            row |= {"status": "SKIPPED", "reason": "fewer than 30 rows", "metrics": {}}
        rows.append(row)
    return rows


@pytest.fixture(scope="module")
def reports(make_ledgers: Callable[..., LedgerMaker], tmp_path_factory) -> dict[str, Path]:
    call = {"flow": "train_models", "arguments": {"data": f"s3://{LONG}", "features": ["x"] * 300}}
    one = {"key": "a", "seconds": 1.0, "metrics": {"rmse": 1.0}}
    runs = {
        "mixed": make_ledgers().complete(mixed(300), call=call),
        "single": make_ledgers().complete([one]),
        "working": make_ledgers().leave(mixed(5)),
    }
    folder = tmp_path_factory.mktemp("reports")
    for name, run in runs.items():
        (folder / f"{name}.html").write_text(render_report(run), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in runs}


@contextmanager
def opened(tab: Any, report: Path, width: int = 1280, scheme: str = "light") -> Iterator[Any]:
    """The page with the report, which asks for nothing else and has nothing to complain of."""
    said: list[str] = []
    heard = {
        "console": lambda message: said.append(message.text),
        "pageerror": lambda error: said.append(str(error)),
        "request": lambda asked: said.append(asked.url),
    }
    tab.set_viewport_size({"width": width, "height": 800})
    tab.emulate_media(media="screen", color_scheme=scheme)
    for event, hear in heard.items():
        tab.on(event, hear)
    try:
        tab.goto(report.as_uri())
        yield tab
    finally:
        for event, hear in heard.items():
            tab.remove_listener(event, hear)
    assert [line for line in said if line not in (report.as_uri(), "data:,")] == []


def keep(page: Any, name: str) -> None:
    """Keep a picture, where somebody named a folder for it: it takes longer than all else here."""
    if folder := os.environ.get("PARTWISE_SCREENSHOTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


OUTSIDE = """() => [...document.querySelectorAll('svg text, svg rect, svg circle')]
    .filter(one => {
        const box = one.getBoundingClientRect();
        return box.left < 0 || box.right > window.innerWidth + 0.5;
    })
    .map(one => one.outerHTML)"""


@pytest.mark.parametrize("name", ["mixed", "single", "working"])
@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_nothing_runs_over_the_edge(tab, reports, name, width, scheme) -> None:
    fits = "document.documentElement.scrollWidth <= window.innerWidth"
    with opened(tab, reports[name], width, scheme) as page:
        keep(page, f"report-{name}-{width}-{scheme}")
        assert page.evaluate(fits)
        # What SVG lets run over its edge makes no page wider.
        assert page.evaluate(OUTSIDE) == []
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        assert page.evaluate(fits)


CONTRASTS = """() => {
    const light = (text) => {
        const [r, g, b] = text.match(/[\\d.]+/g).map(Number).map(c => {
            c /= 255;
            return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const page = light(getComputedStyle(document.body).backgroundColor);
    return NAMES.map(name => {
        const style = getComputedStyle(document.querySelector(name));
        const ink = light(name.startsWith('svg') ? style.fill : style.color);
        return [name, (Math.max(ink, page) + 0.05) / (Math.min(ink, page) + 0.05)];
    });
}"""
TEXTS = ["body", ".lede", ".status", "a", "summary", ".worst", "th", "svg text"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out_from_a_light_and_a_dark_page(tab, reports, scheme) -> None:
    with opened(tab, reports["mixed"], scheme=scheme) as page:
        found = page.evaluate(CONTRASTS.replace("NAMES", str(TEXTS)))
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert [name for name, _ in found] == TEXTS
    assert [(name, contrast) for name, contrast in found if contrast < 4.5] == []
    assert (background == "rgb(255, 255, 255)") is (scheme == "light")


def test_the_keyboard_reaches_and_opens_all(tab, reports) -> None:
    with opened(tab, reports["mixed"], 400) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        assert page.evaluate("document.activeElement.getBoundingClientRect().top") >= 0
        page.keyboard.press("Enter")
        reached: set[int] = set()
        place = "[...document.querySelectorAll('summary')].indexOf(document.activeElement)"
        for _ in range(100):
            page.keyboard.press("Tab")
            found = page.evaluate(place)
            if found in reached:
                break
            if found >= 0:
                page.keyboard.press("Enter")
                assert page.evaluate("document.activeElement.parentElement.open")
                reached.add(found)
        assert len(reached) == page.evaluate("document.querySelectorAll('details').length") > 5
        # Wide tables scroll in boxes of their own, which the arrow keys move.
        boxes = page.evaluate("document.querySelectorAll('.scroll[tabindex=\"0\"]').length")
        assert boxes == page.evaluate("document.querySelectorAll('table').length") - len(
            page.query_selector_all(".scroll table + table")
        )


def test_it_prints_all_that_it_hides(tab, reports) -> None:
    with opened(tab, reports["mixed"]) as page:
        table = page.get_by_role("table").filter(has_text="first began")
        assert not table.is_visible()
        page.emulate_media(media="print")
        assert table.is_visible()
        assert not page.get_by_role("navigation").is_visible()
