"""Reading a report as a browser does, and as strictly as an XML parser would."""

from html.parser import HTMLParser
from typing import Any

LOADING = {"script", "img", "iframe", "object", "embed", "form", "base", "video", "foreignobject"}
PLACES = ("x", "width", "height")
VOID = {"meta", "link", "br", "wbr", "hr", "img"}


class Page(HTMLParser):
    """A parsed report: its elements, its text, and what is wrong with its markup."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.mistakes: list[str] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self._in_picture = 0  # how many of the open elements are, or are in, one with role="img"
        self.feed(html)
        self.close()
        self.mistakes += [f"<{tag}> is never closed" for tag in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        if len(names) != len(set(names)):
            self.mistakes.append(f"<{tag}> has an attribute twice: {names}")
        self.elements.append((tag, dict(attrs)))
        if tag == "svg" and not self._in_picture and dict(attrs).get("role") != "img":
            self.mistakes.append("<svg> without a text for those who do not see it")
        if tag not in VOID:
            self._open.append(tag)
            self._in_picture += bool(self._in_picture) or dict(attrs).get("role") == "img"

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open[-1] != tag:
            self.mistakes.append(f"</{tag}> closes {self._open[-1:]}")
        else:
            self._open.pop()
            self._in_picture -= bool(self._in_picture)

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.texts.append(data)

    @property
    def text(self) -> str:
        """All that a person reads, in one line."""
        return " ".join(" ".join(self.texts).split())

    def of(self, tag: str) -> list[dict[str, Any]]:
        """The attributes of each element of this name."""
        return [attributes for name, attributes in self.elements if name == tag]


def check(html: str) -> Page:
    """Return the page, when it is well-formed, self-contained, and labelled for all readers."""
    page = Page(html)
    assert page.mistakes == []
    tags = {tag for tag, _ in page.elements}
    assert not tags & {
        "script",
        "img",
        "iframe",
        "object",
        "embed",
        "form",
        "base",
        "foreignobject",
    }
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on")]
        target = attributes.get("href") or attributes.get("src") or "#"
        assert target == "data:," if tag == "link" else target[1:] in {"", *ids}
    style = html[html.index("<style>") : html.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    for tag, attributes in page.elements:
        if attributes.get("role") in ("img", "region"):
            assert attributes["aria-label"]
        if attributes.get("aria-labelledby"):
            assert attributes["aria-labelledby"] in ids
        if tag == "rect":
            x, width, height = (float(str(attributes[n]).rstrip("%")) for n in PLACES)
            assert 0 <= x <= x + width <= 100.2
            assert 0 <= height <= 100
        if tag == "circle":
            assert all(0 <= float(str(attributes[n]).rstrip("%")) <= 100 for n in ("cx", "cy"))
    return page
