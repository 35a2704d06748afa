"""The documentation as a site: built as `make docs` does, complete, and read without a network."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import partwise
from partwise.engine.options import ExecutionOptions
from partwise.flows.cli.main import app
from tests.lazily import Lazily

sync_api = Lazily("playwright.sync_api")
ROOT = Path(__file__).resolve().parents[1]
# What a browser loads by itself; a link that a reader may follow is not part of it.
LOADED = {"src", "srcset", "poster", "data"}
# Any other element is a `<name>` in a text that should have been escaped.
WORDS = (
    "a article b body button code div em footer form h1 h2 h3 h4 head header hr html input label"
)
WORDS += " li link main meta nav ol p path pre script span strong svg table tbody td th thead title"
TAGS = {*WORDS.split(), "tr", "ul"}

pytestmark = pytest.mark.slow  # building it takes 10 s


class Page(HTMLParser):
    """What one page loads, which elements it has, and its text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.tags: set[str] = set()
        self.text = ""
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.loads += [
            value or ""
            for name, value in attrs
            if name in LOADED or (tag, name) == ("link", "href")
        ]

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built where nothing outside of the machine is reached."""
    folder = tmp_path_factory.mktemp("site")
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **nowhere, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    return {str(path.relative_to(site)): Page(path) for path in site.rglob("*.html")}


def test_no_page_loads_anything_from_elsewhere(site, pages) -> None:
    loads = {load for page in pages.values() for load in page.loads}
    assert len(pages) > 50
    assert [load for load in loads if "//" in load] == []
    sheets = [path.read_text() for path in site.rglob("*.css")]
    assert [sheet for sheet in sheets if "url(http" in sheet or "@import" in sheet] == []


def test_no_text_is_taken_for_html(pages) -> None:
    assert {name: page.tags - TAGS for name, page in pages.items() if page.tags - TAGS} == {}


def test_every_command_has_its_options_on_a_page(pages) -> None:
    names = [name for name in app if not name.startswith("-")]
    assert [name for name in names if f"commands/{name}.html" not in pages] == []
    train = pages["commands/train.html"].text
    assert "partwise train --partition-by STR... --trainer STR [OPTIONS] DATA" in train
    assert "the run RUN_ID-sample" in train
    assert "partwise runs compare" in pages["commands/runs.html"].text


def test_every_public_name_has_its_words_on_a_page(pages) -> None:
    text = " ".join(page.text for name, page in pages.items() if name.startswith("api/"))
    assert [name for name in partwise.__all__ if name not in text] == []
    for name, field in ExecutionOptions.model_fields.items():
        assert name in text
        assert " ".join(str(field.description).split()) in " ".join(text.split())
    assert ">>> run = train_models(" in text


@pytest.fixture(scope="module")
def tab(chromium: str) -> Iterator[Any]:
    """A page of a browser, of which each test sets the size and loads what it reads."""
    with sync_api.sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=chromium, args=options)
        yield browser.new_page(reduced_motion="reduce")
        browser.close()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_a_reader_without_a_server_finds_a_word(site, tab, width, scheme) -> None:
    tab.set_viewport_size({"width": width, "height": 900})
    tab.emulate_media(color_scheme=scheme)
    requests: list[str] = []

    def hear(request: Any) -> None:
        requests.append(request.url)

    tab.on("request", hear)
    tab.goto(f"file://{site}/index.html")
    if width < 1000:
        tab.locator("label[for=__search]").first.click()
    tab.locator("input.md-search__input").press_sequentially("retry_backoff_s")
    # Results come and go while it types: the last word counts.
    first = tab.locator(".md-search-result__link").first
    first.filter(has_text="How a run is executed").wait_for()

    tab.goto(f"file://{site}/training.html")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    if pictures := os.environ.get("PARTWISE_SCREENSHOTS"):
        tab.screenshot(path=f"{pictures}/site-{width}-{scheme}.png")
    tab.remove_listener("request", hear)
    assert len(requests) > 2
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []


SENTENCES = {
    "keep the last three runs": "runs.html",
    "retry a failed partition": "partition_limits.html",
    "roll back to the model of last week": "roll_back.html",
    "memory limit of a partition": "partition_limits.html",
    "export models to onnx": "exports.html",
    "how do I get an email when a night fails": "alarms.html",
    "read parquet files from s3": "buckets.html",
    "train one model per store": "training.html",
    "use a gpu for each partition": "clusters.html",
    "delete old runs": "retention.html",
    "password of the prefect ui": "server.html",
    "predict without a server": "server.html",
    "How do I roll back to the model of last week": "roll_back.html",
}
"""What people look for, and a page that says it. Before small words were left out and pages of
decisions counted less, one of these was first for seven of the sentences."""


def test_a_sentence_is_searched_by_its_words(site, tab) -> None:
    tab.set_viewport_size({"width": 1280, "height": 900})
    tab.goto(f"file://{site}/index.html")
    field, found = tab.locator("input.md-search__input"), {}
    for sentence, wanted in SENTENCES.items():
        field.fill(sentence)
        field.press("End")  # the page looks when a key was pressed
        tab.locator(f".md-search-result__link[href*='/{wanted}']").first.wait_for()
        links = tab.locator(".md-search-result__link").all()
        names = [re.sub(r".*/|[?#].*", "", link.get_attribute("href")) for link in links]
        found[sentence] = list(dict.fromkeys(names)).index(wanted)
        field.fill("")
        field.press("End")
        tab.locator(".md-search-result__link").first.wait_for(state="detached")
    assert {sentence: place for sentence, place in found.items() if place > 2} == {}
