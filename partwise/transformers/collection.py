"""Collections: models to export in one run, each with its feature and options."""

import hashlib
import json
import os
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import ConfigDict, Field, ValidationError, model_validator

from partwise.connector.context import check_filename
from partwise.errors import InputError
from partwise.form_schema import for_forms
from partwise.settings import Settings
from partwise.transformers.checkpoint_files import (
    find_checkpoint,
    find_weights,
    read_config,
    served_files,
)
from partwise.transformers.export import LIBRARIES
from partwise.transformers.feature_choice import check_feature
from partwise.transformers.options import TransformersOptions

KEY = "name"
"""The key column of a run of exports."""

DEFAULT_OPTIONS = TransformersOptions()


class TransformersExport(Settings):
    """A model of transformers to export, and how.

    Example:
        >>> TransformersExport(model="models/bert", feature="masked-lm").key
        'bert-masked-lm'
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", title="Model to export", json_schema_extra=for_forms
    )

    model: str = Field(
        kw_only=False,
        min_length=1,
        description="A folder with config.json and weights, which the workers see as well, or the "
        "ID of a model on the hub: it is fetched where the run is started, and the workers have to "
        "share that machine's cache folder of the hub.",
    )
    feature: str = Field(
        default="default",
        description='What it is exported to do, such as "sequence-classification".',
    )
    name: str = Field(
        default="",
        description="The partition's name in the run. Empty: the folder's, a dash, the feature.",
    )
    options: TransformersOptions = Field(default=DEFAULT_OPTIONS)

    @model_validator(mode="before")
    @classmethod
    def _from_sequence(cls, value: Any) -> Any:
        """Take (model,), (model, feature) and (model, feature, options) too."""
        if isinstance(value, list | tuple) and 1 <= len(value) <= 3:
            return dict(zip(("model", "feature", "options"), value, strict=False))
        return value

    @property
    def key(self) -> str:
        """The name of its partition."""
        return self.name or f"{os.path.basename(os.path.abspath(self.model))}-{self.feature}"


def read_exports(models: Sequence[Any]) -> list[TransformersExport]:
    """Return what is to be exported.

    They are `TransformersExport`, mappings of its fields, or tuples of a model, a feature and
    options.
    """
    if not models:
        raise InputError("models= is empty: give at least one (model, feature).")
    found: dict[str, TransformersExport] = {}
    for place, given in enumerate(models):
        try:
            item = TransformersExport.model_validate(given)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(map(str, first["loc"])) or "its fields"
            raise InputError(
                f"models[{place}], {given!r:.200}, cannot be used: {field}: {first['msg']}."
            ) from None
        if item.key in found:
            raise InputError(
                f"models[{place}] is named {item.key!r}, as an earlier one is: give one of the two "
                "another name=."
            )
        found[item.key] = item
    return list(found.values())


def tabulate(exports: Sequence[TransformersExport]) -> pa.Table:
    """Return a row for each export with all that decides what becomes of it.

    What stands in the folders is looked at: names, sizes and times of change. Equal rows come to
    equal exports.
    """
    libraries = json.dumps({name: _installed(name) for name in LIBRARIES})
    rows = []
    for item in exports:
        folder = _check(item)
        rows.append(
            {
                KEY: item.key,
                "model": str(folder),
                "feature": item.feature,
                "options": item.options.model_dump_json(),
                "files": _fingerprint(folder),
                "libraries": libraries,
            }
        )
    return pa.Table.from_pylist(rows)


def _check(item: TransformersExport) -> Path:
    """Return the folder of a model that has the feature, as far as its config.json says."""
    try:
        folder = find_checkpoint(item.model, trusts_code=item.options.trust_remote_code)
        check_feature(read_config(folder)["model_type"], item.feature)
        find_weights(item.model, folder)
        for file in served_files(folder):
            # They become artifacts, at the end of the work.
            check_filename(file.name)
    except InputError as error:
        raise type(error)(f"The model {item.key!r} cannot be exported: {error}") from error
    # Processes work elsewhere.
    return folder.absolute()


def _fingerprint(folder: Path) -> str:
    """Return the SHA-256 of names, sizes and mtimes below a folder, hidden ones left out."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if path.is_file() and not any(part.startswith(".") for part in inside.parts):
            # Not by content: weights may have gigabytes, and the driver need not read them.
            stat = path.stat()
            digest.update(f"{inside.as_posix()}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _installed(library: str) -> str | None:
    try:
        return version(library)
    except PackageNotFoundError:
        # The driver may be a machine without torch.
        return None
