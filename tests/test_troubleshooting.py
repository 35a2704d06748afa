"""docs/troubleshooting.md: each sentence in its headings is one that the code can say."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
SENTENCES = re.findall(r"^### (.*)$", PAGE, re.MULTILINE)
VALUE = "…"


@pytest.fixture(scope="module")
def texts() -> str:
    """Every text of the code, a line for each, with `…` where a value stands."""
    paths = [*ROOT.glob("partwise/**/*.py"), *ROOT.glob("[bft]*/**/*.py")]
    found = {
        text.replace("\n", " ")
        for path in paths
        if path.relative_to(ROOT).parts[0] in ("partwise", "blocks", "flows", "tasks")
        for text in _texts(path)
    }
    return "\n".join(found)


def _texts(path: Path) -> list[str]:
    texts = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.append(node.value)
        elif isinstance(node, ast.JoinedStr):
            texts.append("".join(_part(part) for part in node.values))
    return texts


def _part(part: ast.expr) -> str:
    return str(part.value) if isinstance(part, ast.Constant) else VALUE


def test_the_page_has_the_sentences_of_each_kind() -> None:
    assert len(SENTENCES) >= 25
    assert len(set(SENTENCES)) == len(SENTENCES)


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_sentence_of_the_page_is_one_of_the_code(sentence, texts) -> None:
    fixed = [re.escape(words.strip()) for words in sentence.split(VALUE)]
    assert max(len(words) for words in fixed) > 8
    assert re.search(".*?".join(fixed), texts), sentence
