"""What the document of routes says holds for questions that schemathesis makes from it."""

import subprocess
import sys

import pytest

from tests.serving.onnx_server import make_catalog, serving
from tests.thoroughness import THOROUGH

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
"""That every question of the right form is answered is none: it may ask for another key."""


@pytest.mark.slow
def test_answers_are_what_the_document_says(tmp_path):
    code = "from schemathesis.cli import schemathesis; schemathesis()"
    with serving(make_catalog(tmp_path)) as server:
        url = f"http://127.0.0.1:{server.port}/openapi.json"
        options = [f"--checks={','.join(CHECKS)}", "--request-timeout=20", "--seed=7"]
        options += [
            "--phases=examples,coverage,fuzzing",
            f"--max-examples={400 if THOROUGH else 20}",
        ]
        ended = subprocess.run(
            [sys.executable, "-c", code, "run", url, *options],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-2000:]
