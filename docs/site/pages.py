"""What the site has besides docs/*.md: files of the repository, and a reference made of the code.

mkdocs calls these functions while it builds (`hooks` in mkdocs.yml). Pages stand in the site as
they do in docs/, so that links which work in the repository work there as well.
"""

import functools
import posixpath
import re
from collections import defaultdict
from pathlib import Path

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import partwise
from partwise.flows.cli.main import app
from partwise.migration.names import PAGES
from partwise.processes.garbage import collect_rarely

ROOT = Path(__file__).resolve().parents[2]
OF_THE_REPOSITORY = [
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "tests/README.md"),
    *(f"partwise/migration/{page}" for page in PAGES),
    *("docs/site/assets/iframe-worker.js", "docs/site/assets/site.css"),
]
# Which page of the reference has the public names of a floor of the library.
API_PAGES = {
    "Start a run": ("flows",),
    "What a function gets and returns": ("connector", "ranks", "outcomes"),
    "Trainers": ("trainers", "evaluation", "tuning"),
    "How a run is executed": ("engine", "environments", "gangs", "scripts"),
    "Runs, datasets and stores": ("runs", "reports", "datasets", "store"),
    "Catalogs": ("catalogs",),
    "Predictors": ("serving",),
    "Rows in and rows out": ("sources", "publishing"),
    "Blocks": ("blocks",),
    "Models as files": ("models",),
    "Exports": ("exports", "transformers"),
    "Errors": ("errors",),
}
# How much a word of a page counts where somebody searches: who looks for "delete old runs" wants
# what to do, not what was decided. Titles count a thousand times what texts do.
WEIGHTS = {
    "decisions/": 1e-4,
    "tests/": 1e-4,
    "partwise/": 1e-3,
    "examples/": 1e-3,
    "CHANGELOG": 1e-3,
    "CONTRIBUTING": 1e-3,
    "architecture": 1e-2,
    "from_": 1e-2,
    "api/": 0.1,
    "commands/": 0.1,
}
DECISIONS = ROOT / "docs" / "decisions"
LINK = re.compile(r"\[([^]]*)\]\((?!https?:|#)([^)#\s]+)")


def on_startup(**_: object) -> None:
    """Spend no fifth of the time in looking for garbage among the trees of all our code."""
    collect_rarely()


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages that are made of the code into the navigation."""
    (reference,) = (part["Reference"] for part in config.nav or [] if "Reference" in part)
    reference.insert(0, {"Command line": list(_command_pages())})
    reference.insert(1, {"Python": list(_api_pages())})
    (inside,) = (part["Inside"] for part in config.nav or [] if "Inside" in part)
    decisions = [DECISIONS / "README.md", *sorted(DECISIONS.glob("20*.md"))]
    inside.append({"Decisions": [str(page.relative_to(ROOT / "docs")) for page in decisions]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files of the repository, and the pages of commands and of public names."""
    examples = [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("examples/**/*.*"))]
    for name in [*OF_THE_REPOSITORY, *examples]:
        place = name.removeprefix("docs/site/")
        files.append(File.generated(config, place, abs_src_path=str(ROOT / name)))
    for name, text in {**_command_pages(), **_api_pages()}.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Files) -> str:
    """Let links lead to where the site has the pages that the repository has elsewhere."""
    name = page.file.src_uri
    weights = [weight for start, weight in WEIGHTS.items() if name.startswith(start)]
    page.meta.setdefault("search", {"boost": min(weights, default=1.0)})
    here = posixpath.dirname(name)
    is_of_docs = Path(page.file.abs_src_path or "").is_relative_to(config.docs_dir)
    folder = "docs" if is_of_docs else here

    def place(match: re.Match[str]) -> str:
        file = posixpath.normpath(posixpath.join(folder, match[2]))
        # Who reads the repository knows a page by its file, and who reads the site by its title.
        text = _title(ROOT / file) if match[1] in (file, posixpath.basename(file)) else match[1]
        return f"[{text}]({posixpath.relpath(file.removeprefix('docs/'), here or '.')}"

    if here == "commands":
        # Help texts are not Markdown.
        markdown = re.sub(r"<(\w[\w ]*)>", r"&lt;\1&gt;", markdown)
        return re.sub(r"(?<=[- ])\*(?=[\"\]])", r"\*", markdown)
    # `slow` tells our tests which commands take long.
    return LINK.sub(place, markdown.replace("```bash slow", "```bash"))


def _title(page: Path) -> str:
    first = page.read_text().partition("\n")[0]
    return first.removeprefix("# ") if first.startswith("# ") else page.name


def _command_pages() -> dict[str, str]:
    """A page for each command of the command line, with the options that its `--help` has."""
    return {
        f"commands/{name}.md": f"# partwise {name}\n\n::: cyclopts\n"
        f"    module: partwise.flows.cli.main:app\n    commands: [{name}]\n"
        "    generate_toc: false\n"
        for name in sorted(app)
        if not name.startswith("-")
    }


@functools.cache
def _api_pages() -> dict[str, str]:
    """A page for each kind of public names, with their docstrings."""
    names_of = defaultdict(list)
    for name, module in partwise._MODULE_OF.items():
        # `partwise.flows.train_models` is a module, which has the flow of this name.
        place = f"{module}.{name}.{name}" if module == "partwise.flows" else f"partwise.{name}"
        names_of[module.split(".")[1]].append(place)
    pages = {}
    for title, floors in API_PAGES.items():
        names = [name for floor in floors for name in names_of.pop(floor)]
        slug = re.sub(r"\W+", "_", title.lower())
        pages[f"api/{slug}.md"] = _api_page(title, names)
    if names_of:
        raise ValueError(f"API_PAGES has no page for {dict(names_of)}: name the floors there")
    for floor, title, place in (
        ("client", "The client of a server", "api/client.md"),
        ("testing", "Contracts for tests", "api/contracts.md"),
    ):
        # To import them would need pytest and httpx.
        path = ROOT / "partwise" / floor / "__init__.py"
        exports = griffe.visit(floor, path, path.read_text()).exports or []
        pages[place] = _api_page(title, [f"partwise.{floor}.{name}" for name in exports])
    return pages


def _api_page(title: str, names: list[str]) -> str:
    return f"# {title}\n\n" + "\n".join(f"::: {name}\n" for name in names)
