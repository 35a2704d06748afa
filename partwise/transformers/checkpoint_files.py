"""The files of a checkpoint: where they lie, whether they are all there, what its config.json says.

Nothing here needs torch, nor transformers unless something is fetched, so that a mistake in a name
is said at once.
"""

import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from partwise.errors import CheckpointError
from partwise.formatting import nearest
from partwise.tables.column_names import names_in_words
from partwise.transformers.installed import HUB_LIBRARIES, check_installed

CONFIG = "config.json"
_WEIGHTS = (
    # These first, as transformers reads them where a checkpoint has both kinds.
    *("model.safetensors", "model.safetensors.index.json"),
    *("pytorch_model.bin", "pytorch_model.bin.index.json"),
)
_FOREIGN_WEIGHTS = {
    "tf_model.h5": "TensorFlow",
    "tf_model.h5.index.json": "TensorFlow",
    "flax_model.msgpack": "Flax",
    "flax_model.msgpack.index.json": "Flax",
}
_SERVED = (
    *(CONFIG, "generation_config.json", "preprocessor_config.json", "processor_config.json"),
    *("video_preprocessor_config.json", "audio_tokenizer_config.json", "chat_template.*"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "vocab.txt", "merges.txt", "*.bpe", "*.model", "*.spm", "normalizer.json"),
    # Of PhoBERT and BERTweet, BARTpho, ProphetNet, GPT-NeoX Japanese, RoCBert, and others.
    *("bpe.codes", "dict.txt", "prophetnet.tokenizer", "emoji.json", "word_shape.json"),
    *("word_pronunciation.json", "entity_vocab.json", "byte_maps.json", "target_vocab.json"),
    *("vocab-src.json", "vocab-tgt.json", "tekken.json"),
)
"""What is read beside a model to use it: its configuration, tokenizer and image processor."""

_HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
_LONGEST = 300


def local_path(name: str) -> Path:
    """Return the path that the name of a checkpoint is, if it is one: ~ is the home directory."""
    # Path.expanduser raises where there is no such user.
    return Path(os.path.expanduser(name))


def find_checkpoint(name: str, *, trusts_code: bool = False) -> Path:
    """Return the directory of a checkpoint.

    Of a model on a hub everything is fetched but its weights; see `find_weights`.

    Raises:
        CheckpointError: There is no such directory, nor could a model of this ID be fetched.
    """
    path = local_path(name)
    # By os.path, for which a name that is too long for any file is not there.
    if os.path.isdir(path):
        return path
    if os.path.exists(path):
        raise CheckpointError(f"The model {name} is a file: name the directory that it lies in.")
    above = path.parent
    # "models/brt" where there is a folder "models" is a mistyped path, which no hub is asked for.
    is_path = not _HUB_ID.fullmatch(name) or (above != Path() and os.path.isdir(above))
    if is_path:
        raise CheckpointError(f"There is no directory {name}{_near(path)}.")
    code = ["*.py"] if trusts_code else []
    indexes = [each for each in _WEIGHTS if each.endswith(".json")]
    return _fetch(name, [*_SERVED, *indexes, *code])


def read_config(folder: Path) -> dict[str, Any]:
    """Return what a checkpoint's config.json says.

    Raises:
        CheckpointError: There is none, it is broken, or does not say the model's type.
    """
    path = folder / CONFIG
    if not os.path.isfile(path):
        adapter = " It is an adapter: merge it into its base model first."
        hint = adapter if (folder / "adapter_config.json").is_file() else ""
        raise CheckpointError(
            f"The directory {folder} has no {CONFIG}, so it holds no model of transformers.{hint}"
        )
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"The file {path} is broken: {brief(error)}.") from error
    if not isinstance(found, dict) or not isinstance(found.get("model_type"), str):
        raise CheckpointError(f"The file {path} does not say which model_type it is of.")
    return found


def find_weights(name: str, folder: Path) -> None:
    """Return when a checkpoint has weights that torch can read, after fetching those on a hub.

    Of the kinds of weights that many models on a hub have, one is fetched. `name` is what
    `find_checkpoint` was given, and `folder` what it returned.

    Raises:
        CheckpointError: There are none, or not all of them.
    """
    if not local_path(name).is_dir():
        for weights in _WEIGHTS:
            is_index = weights.endswith(".json")
            if is_index and not (folder / weights).is_file():
                continue
            parts = _parts_of(folder / weights) if is_index else [weights]
            # The hub's client names the folder by its commit: weights of a later one do not fit in.
            _fetch(name, parts, revision=folder.name)
            if all(os.path.isfile(folder / part) for part in parts):
                break
    found = weights_in(folder)
    if found is None:
        raise CheckpointError(_no_weights(folder))
    if found.suffix != ".json":
        return
    parts = _parts_of(found)
    missing = [part for part in parts if not os.path.isfile(folder / part)]
    if missing:
        raise CheckpointError(
            f"The directory {folder} has {len(parts) - len(missing)} of the {len(parts)} files "
            f"with weights that {found.name} names; {names_in_words(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing. Copy or download it again."
        )


def weights_in(folder: Path) -> Path | None:
    """Return the weights that torch reads in a folder, of several files their index, or None."""
    return next((folder / name for name in _WEIGHTS if os.path.isfile(folder / name)), None)


def _parts_of(index: Path) -> list[str]:
    """Return the names of the files with weights that an index names."""
    try:
        return sorted({str(part) for part in json.loads(index.read_bytes())["weight_map"].values()})
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"The file {index} is broken: {brief(error)}.") from error


def served_files(folder: Path) -> Iterator[Path]:
    """Yield the files that go with a model to where it is served: all but its weights."""
    for pattern in _SERVED:
        yield from sorted(path for path in folder.glob(pattern) if path.is_file())


def brief(error: BaseException) -> str:
    """Return the first line of an error of another library, shortened, with its type."""
    lines = str(error).strip().splitlines() or [""]
    text = lines[0].strip().rstrip(".")
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _near(path: Path) -> str:
    """Say which directory beside a missing one has nearly its name, if there is any."""
    folder = path.parent
    try:
        names = [each.name for each in folder.iterdir() if each.is_dir()]
    except OSError:  # it is not there, or not to be read
        return ""
    near = nearest(path.name, names, most=1)
    return f" (there is {folder / near[0]})" if near else ""


def _no_weights(folder: Path) -> str:
    kinds = {kind for name, kind in _FOREIGN_WEIGHTS.items() if (folder / name).exists()}
    if kinds:
        kind = kinds.pop()
        return (
            f"The directory {folder} has weights for {kind} only, which transformers 5 does not "
            "read. Convert them with transformers 4: load the model with "
            f"from_{'tf' if kind == 'TensorFlow' else 'flax'}=True, and save_pretrained it."
        )
    return (
        f"The directory {folder} has no weights: expected is {names_in_words(list(_WEIGHTS))}, as "
        "save_pretrained writes them."
    )


def _fetch(name: str, patterns: Sequence[str], revision: str | None = None) -> Path:
    """Return the directory that the hub's client keeps a model in, with files of these names."""
    check_installed(HUB_LIBRARIES)
    from huggingface_hub import snapshot_download

    from partwise.transformers.quiet import quiet

    try:
        with quiet():
            # Weights that an index names may lie in a folder; of the rest nothing there is wanted.
            ignored = None if revision else "*/*"
            found = snapshot_download(
                name, revision=revision, allow_patterns=list(patterns), ignore_patterns=ignored
            )
    except Exception as error:  # of the network and the hub there are dozens
        raise CheckpointError(
            f"There is no directory {name} here{_near(Path(name))}, and no model of that ID could "
            f"be fetched from the hub ({brief(error)})."
        ) from error
    return Path(found)
