"""Tiny wheels, made in a test: packages of one module each."""

import base64
import hashlib
import zipfile
from collections.abc import Sequence
from pathlib import Path


def make_wheel(
    folder: Path,
    name: str,
    version: str,
    content: str = "",
    requires: Sequence[str] = (),
    script: str = "",
) -> Path:
    """Make a wheel of a module with this content, and perhaps a program that calls its `main`."""
    folder.mkdir(parents=True, exist_ok=True)
    module = name.replace("-", "_")
    about = f"{module}-{version}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {requirement}" for requirement in requires]
    files = {
        f"{module}/__init__.py": f"__version__ = {version!r}\n{content}",
        f"{about}/METADATA": "\n".join(lines) + "\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    if script:
        files[f"{about}/entry_points.txt"] = f"[console_scripts]\n{script} = {module}:main\n"
    record = [f"{path},{_digest(text)},{len(text.encode())}" for path, text in files.items()]
    files[f"{about}/RECORD"] = "\n".join([*record, f"{about}/RECORD,,"]) + "\n"
    path = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in files.items():
            archive.writestr(zipfile.ZipInfo(member), text)
    return path


def _digest(text: str) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
    return f"sha256={digest.decode().rstrip('=')}"
