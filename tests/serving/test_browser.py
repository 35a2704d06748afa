"""The page of keys in a real browser, with keys made to break it.

PARTWISE_SCREENSHOTS names a folder to keep the pictures in.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from partwise.catalogs.catalog import Catalog
from partwise.store.store import Store
from tests.lazily import Lazily
from tests.serving.catalogs import API_KEY, promote_scales, serving

sync_api = Lazily("playwright.sync_api")
# Within a container: as root, and with little shared memory.
ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage"]
SCHEMES = ("light", "dark")
HOSTILE = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "q\"'`${x}",
    "🦜\u202e",
    "x" * 300,
)
KEYS = {**dict.fromkeys(HOSTILE, 2.0), **{f"store-{i:03d}": float(i) for i in range(100)}}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Store:
    store = Store.of(tmp_path_factory.mktemp("store"))
    promote_scales(store, "night-1", KEYS)
    promote_scales(store, "night-2", {"store-001": 10.0, HOSTILE[0]: 3.0})
    Catalog.open("sales", store).pin([HOSTILE[0]]).retire(["store-002"])
    return store


@pytest.fixture(scope="module")
def url(store) -> Iterator[str]:
    with serving(store) as url:
        yield url


@pytest.fixture(scope="module")
def tab(browser) -> Any:
    """The one tab, which loads the page anew for each test: a new one takes a second of a core."""
    page = browser.new_page()
    page.set_default_timeout(10_000)
    return page


@contextmanager
def opened(page: Any, url: str, width: int = 1280, refusals: int = 0):
    """A page that asks this server only, and has nothing to complain of but what it is refused."""
    said: list[str] = []
    asked: list[str] = []
    heard = {
        "console": lambda message: said.append(message.text),
        "pageerror": lambda error: said.append(str(error)),
        "dialog": lambda dialog: (said.append(dialog.message), dialog.dismiss()),
        "request": lambda request: asked.append(request.url),
    }
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme="light")
    for event, hear in heard.items():
        page.on(event, hear)
    try:
        page.goto(url)
        yield page
        # What it still asks for ends here.
        page.goto("about:blank")
    finally:
        for event, hear in heard.items():
            page.remove_listener(event, hear)
    assert [line for line in said if not line.startswith("Failed to load resource")] == []
    assert len(said) == refusals, said
    own = (url, "data:,", "blob:", "about:blank")
    assert [each for each in asked if not each.startswith(own)] == []


def choose(page: Any, key: str) -> None:
    page.get_by_label("Key", exact=True).fill(key)
    page.get_by_role("button", name=key, exact=True).click()
    page.locator("#key", has_text=key).wait_for()
    assert page.locator("#key").text_content() == key
    # What is asked for last; that of the key before is gone by now.
    page.locator("#history tr").first.wait_for()


def keep(page: Any, name: str) -> None:
    """Keep a picture where somebody asked for them: it takes as long as all else of a test."""
    if named := os.environ.get("PARTWISE_SCREENSHOTS"):
        folder = Path(named)
        folder.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=folder / f"{name}.png", full_page=True)


def fits(page: Any) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_runs_over_the_edge(tab, url, width) -> None:
    with opened(tab, url, width) as page:
        for key in (HOSTILE[0], HOSTILE[-1]):
            choose(page, key)
            page.get_by_label("price FP64").fill("2")
            page.get_by_role("button", name="Predict").click()
            page.locator("summary").wait_for()
            page.locator("details").evaluate("one => one.open = true")
            for scheme in SCHEMES:
                page.emulate_media(color_scheme=scheme)
                keep(page, f"keys-{HOSTILE.index(key)}-{width}-{scheme}")
                assert fits(page), (key, scheme)


def test_a_key_of_any_characters_is_text_and_predicts(tab, url) -> None:
    with opened(tab, url) as page:
        for price, key in enumerate(HOSTILE, 2):
            choose(page, key)
            page.get_by_label("price FP64").fill(f"{price}.5")
            page.get_by_role("button", name="Predict").click()
            # Each has a price, and so a prediction, of its own.
            predicted = (price + 0.5) * (3 if key == HOSTILE[0] else 2)
            shown = page.locator("#prediction").get_by_text(f"{predicted:g}", exact=True)
            shown.wait_for()
            assert page.locator("main img, main script").count() == 0


def test_what_a_champion_is_and_was(tab, url) -> None:
    # The columns of the retired one.
    with opened(tab, url, refusals=1) as page:
        page.get_by_text("105 keys found, of which 50 are shown.").wait_for()
        assert page.get_by_role("heading", level=1).text_content() == "catalog://sales@4"
        choose(page, HOSTILE[0])
        assert "Pinned" in page.locator("#marks").text_content()
        assert page.locator("#facts").get_by_text("night-2").is_visible()
        assert page.locator("#metrics").text_content() == "value 3"
        rows = page.locator("#history tr").all_text_contents()
        assert [row[0] for row in rows] == ["3", "2", "1"]
        choose(page, "store-002")
        assert "Retired" in page.locator("#marks").text_content()
        # It has no model to try.
        assert page.get_by_role("heading", name="Try a row").is_hidden()


def test_what_the_server_refuses_is_said(tab, url) -> None:
    with opened(tab, url, refusals=1) as page:
        choose(page, "store-001")
        page.evaluate("chosen.columns.push({name: 'prize', datatype: 'FP64'})")
        page.evaluate("at('fields').append(field(chosen.columns[1], 1))")
        page.get_by_role("button", name="Predict").click()
        page.get_by_role("alert").get_by_text("did you mean").wait_for()


def test_the_api_key_is_asked_for_and_forgotten(tab, store) -> None:
    with serving(store, api_key=API_KEY) as url, opened(tab, url, refusals=3) as page:
        ask = page.get_by_label("API key")
        ask.fill("another")
        page.get_by_role("button", name="Use it").click()
        page.get_by_role("alert").get_by_text("API key").wait_for()
        assert page.locator("#inside").is_hidden()
        ask.fill(API_KEY)
        page.get_by_role("button", name="Use it").click()
        choose(page, "store-001")
        assert ask.is_hidden()
        with page.expect_popup() as opening:
            page.get_by_role("link", name="How to ask it from programs").click()
        docs = opening.value
        docs.get_by_role("heading", level=1, name="sales, served by partwise").wait_for()
        assert (
            docs.evaluate("getComputedStyle(document.querySelector('.verb')).fontWeight") == "650"
        )
        docs.close()
        page.reload()
        ask.wait_for()
        kept = "[document.cookie, localStorage.length, sessionStorage.length, apiKey]"
        assert page.evaluate(kept) == ["", 0, 0, ""]


def test_the_page_of_routes_fits_and_keys_are_chosen_by_keyboard(tab, url) -> None:
    with opened(tab, f"{url}/docs", 400) as page:
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        assert fits(page)
    with opened(tab, url) as page:
        page.get_by_label("Key", exact=True).fill("store-00")
        page.get_by_text("10 keys found.").wait_for()
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.locator("#history tr").first.wait_for()
        assert page.locator("#key").text_content() in ("store-000", "store-001")


CONTRASTS = """() => {
    const light = (text) => {
        const [r, g, b] = text.match(/[\\d.]+/g).map(Number).map(c => {
            c /= 255;
            return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (one) => {
        const color = getComputedStyle(one).backgroundColor;
        return color === 'rgba(0, 0, 0, 0)' ? behind(one.parentElement) : color;
    };
    const texts = [...document.querySelectorAll('main *, header *')].filter(one => one.innerText);
    return texts.map(one => {
        const [ink, page] = [light(getComputedStyle(one).color), light(behind(one))];
        const contrast = (Math.max(ink, page) + 0.05) / (Math.min(ink, page) + 0.05);
        return [one.outerHTML.slice(0, 80), contrast];
    }).filter(([, contrast]) => contrast < 4.5);
}"""


def test_texts_stand_out_from_what_is_behind_them(tab, url) -> None:
    with opened(tab, url) as page:
        choose(page, "store-001")
        inks = set()
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            inks.add(page.evaluate("getComputedStyle(document.body).color"))
            assert page.evaluate(CONTRASTS) == [], scheme
        assert len(inks) == 2
