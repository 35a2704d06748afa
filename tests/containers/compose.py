"""compose.yaml as Docker reads it, and its services as processes of this machine."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "containers"
_VARIABLE = re.compile(r"\$(\$|\{(?P<name>\w+)(?P<how>:[-?])?(?P<rest>[^}]*)\})")


def make_secrets(folder: Path, project: Path) -> dict[str, str]:
    """Run make-secrets in a folder of its own, and return what .env has."""
    folder.mkdir(exist_ok=True)
    shutil.copy(FOLDER / "make-secrets", folder)
    command = ["sh", str(folder / "make-secrets"), str(project)]
    subprocess.run(command, check=True, capture_output=True)
    lines = (folder / ".env").read_text().splitlines()
    return {name: value.strip("'") for name, _, value in (line.partition("=") for line in lines)}


def read_compose(variables: Mapping[str, str]) -> dict[str, Any]:
    """Return compose.yaml with values for its variables."""

    def value(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        if found["how"] == ":-":
            return variables.get(found["name"]) or found["rest"]
        return variables[found["name"]]

    text = "\n".join(
        line
        for line in (FOLDER / "compose.yaml").read_text().splitlines()
        if not line.lstrip().startswith("#")
    )
    document: dict[str, Any] = yaml.safe_load(_VARIABLE.sub(value, text))
    return document


def environment_of(service: Mapping[str, Any], others: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a service, in that of this process without Prefect's settings."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "AWS_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return kept | {"PATH": path} | service.get("environment", {}) | others
