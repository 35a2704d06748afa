"""Real inputs: text and images as the preprocessor beside a model makes them, to compare on."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from partwise.errors import CheckpointError
from partwise.tables.column_names import names_in_words
from partwise.transformers.checkpoint_files import brief
from partwise.transformers.model_parts import text_part
from partwise.transformers.onnx_config import OnnxConfig, OnnxSeq2SeqConfigWithPast
from partwise.transformers.options import TransformersOptions
from partwise.transformers.quiet import quiet
from partwise.transformers.sizes import Sizes

CASE = "preprocessed"
"""The name of the case."""

_TEXTS = (
    "The train to the coast was late again.",
    "Nobody minded, for the sun was out and somebody had brought cherries for all of us.",
)
_ROWS = len(_TEXTS)
_FILES = {
    "tokenizer": ("tokenizer_config.json", "tokenizer.json", "vocab.txt", "vocab.json"),
    "image processor": ("preprocessor_config.json", "processor_config.json"),
}
"""Without any of these, transformers makes a tokenizer of nothing, which knows no word."""
_MAKES = {"tokenizer": "text", "image processor": "images"}
_LARGEST_IMAGE = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Preprocessed:
    """What preprocessors made."""

    by_case: Mapping[str, Mapping[str, np.ndarray]] = field(default_factory=dict)
    """Inputs by the name of their case."""
    notes: tuple[str, ...] = ()
    """Which preprocessors lie there and could not be used, in sentences."""


class _UnfitError(Exception):
    """A preprocessor does not take what it is given, such as one that also wants boxes."""


def make_real_inputs(
    folder: Path, config: OnnxConfig, options: TransformersOptions
) -> Preprocessed:
    """Return two rows as a model's own preprocessor makes them.

    Text is two sentences of different length, padded; an image is random pixels. Inputs that no
    preprocessor makes, such as an empty past, are those of `generate_dummy_inputs`.

    The option "auto" takes what stands there and works, and may find none.

    Raises:
        CheckpointError: The named preprocessor is not there or does not work, or what it makes is
            nothing for this model.
    """
    # What goes on after an encoder takes no text, and the sizes of neuron are fixed.
    goes_on = isinstance(config, OnnxSeq2SeqConfigWithPast) and config.use_past
    if goes_on or options.preprocessor == "none" or options.format == "neuron":
        return Preprocessed()
    makers, problems = _open(folder, config, options)
    is_named = options.preprocessor != "auto"
    return _make(makers, problems, config, str(folder), is_named=is_named)


def real_inputs_of(preprocessor: Any, config: OnnxConfig) -> Preprocessed:
    """Return two rows as a tokenizer, an image processor or a processor makes them.

    What it is none of, or cannot make, is left out.
    """
    if isinstance(config, OnnxSeq2SeqConfigWithPast) and config.use_past:
        return Preprocessed()
    takes = getattr(preprocessor, "model_input_names", ())
    makers = {
        kind: getattr(preprocessor, part, preprocessor if name in takes else None)
        for kind, part, name in (
            ("tokenizer", "tokenizer", "input_ids"),
            ("image processor", "image_processor", "pixel_values"),
        )
    }
    wanted = {"tokenizer": _text_name(config), "image processor": _image_name(config)}
    found = {kind: maker for kind, maker in makers.items() if maker is not None and wanted[kind]}
    return _make(found, {}, config, type(preprocessor).__name__, is_named=False)


def _make(
    makers: Mapping[str, Any],
    problems: dict[str, str],
    config: OnnxConfig,
    where: str,
    *,
    is_named: bool,
) -> Preprocessed:
    made: dict[str, np.ndarray] = {}
    for kind, maker in makers.items():
        make = _tokenize if kind == "tokenizer" else _process_images
        try:
            found = make(maker, config)
        except _UnfitError as error:
            problem = f"The {kind} in {where} does not work on plain {_MAKES[kind]}: {error}."
            if is_named:
                raise CheckpointError(problem) from error
            problems[kind] = problem
            continue
        _check(found, config, where, kind)
        made |= found
    return Preprocessed(
        by_case={CASE: _filled_up(made, config)} if made else {},
        notes=tuple(
            f"Compared on random {_MAKES[kind]} only. {problem}"
            for kind, problem in problems.items()
        ),
    )


def _text_name(config: OnnxConfig) -> str:
    """Return the input that holds tokens, "input_ids" with most models; empty: there is none."""
    for name in ("input_ids", "inputs"):
        if "sequence" in str(config.inputs.get(name, {}).get(1 + _is_choice(config), "")):
            return name
    return ""


def _image_name(config: OnnxConfig) -> str:
    """Return the input that holds images; empty: there is none."""
    if "pixel_values" in config.inputs:
        return "pixel_values"
    return "inputs" if "inputs" in config.inputs and not _text_name(config) else ""


def _is_choice(config: OnnxConfig) -> bool:
    return any("choice" in axes.values() for axes in config.inputs.values())


def _open(
    folder: Path, config: OnnxConfig, options: TransformersOptions
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a tokenizer and an image processor, as far as they are wanted and there.

    They come by kind; and of those that nobody named and that cannot be read, why not.
    """
    takes = {"tokenizer": _text_name(config), "image processor": _image_name(config)}
    wanted = [kind for kind, name in takes.items() if name]
    match options.preprocessor:
        case "auto":
            there = [kind for kind in wanted if _lies_in(folder, kind)]
            return _load_some(folder, there, options)
        case "processor":
            processor = _load_named(folder, "processor", options)
            parts = {
                "tokenizer": getattr(processor, "tokenizer", None),
                "image processor": getattr(processor, "image_processor", None),
            }
            found = {kind: parts[kind] for kind in wanted if parts[kind] is not None}
            if not found:
                raise CheckpointError(
                    f"The processor in {folder} is a {type(processor).__name__}, of which "
                    f"{names_in_words(wanted)} is not a part: name it by its own kind."
                )
            return found, {}
        case named:
            kind = "tokenizer" if named == "tokenizer" else "image processor"
            if kind not in wanted:
                raise CheckpointError(
                    f"{config.config.model_type} takes no {_MAKES[kind]} for {config.task!r}, so "
                    f"its {kind} has nothing to make: leave it out."
                )
            if not _lies_in(folder, kind):
                raise CheckpointError(
                    f"There is no {kind} in {folder}, such as {names_in_words(_FILES[kind])}: "
                    "leave it out, or put it there."
                )
            return {kind: _load_named(folder, kind, options)}, {}


def _lies_in(folder: Path, kind: str) -> bool:
    return any((folder / name).is_file() for name in _FILES[kind])


def _load_some(
    folder: Path, kinds: list[str], options: TransformersOptions
) -> tuple[dict[str, Any], dict[str, str]]:
    makers, problems = {}, {}
    for kind in kinds:
        try:
            makers[kind] = _load_named(folder, kind, options)
        except CheckpointError as error:
            problems[kind] = str(error)
    return makers, problems


def _load_named(folder: Path, kind: str, options: TransformersOptions) -> Any:
    import transformers

    auto = {
        "tokenizer": transformers.AutoTokenizer,
        "image processor": transformers.AutoImageProcessor,
        "processor": transformers.AutoProcessor,
    }[kind]
    try:
        with quiet():
            return auto.from_pretrained(
                folder,
                local_files_only=not options.trust_remote_code,
                trust_remote_code=options.trust_remote_code,
            )
    except Exception as error:  # of a missing file as well as of a missing library
        raise CheckpointError(f"The {kind} in {folder} cannot be read: {brief(error)}.") from error


def _call(preprocessor: Any, *data: Any, **settings: Any) -> dict[str, np.ndarray]:
    try:
        with quiet():
            made = preprocessor(*data, return_tensors="np", **settings)
    except Exception as error:  # a preprocessor can raise anything
        raise _UnfitError(brief(error)) from error
    return {name: np.asarray(values) for name, values in made.items()}


def _tokenize(tokenizer: Any, config: OnnxConfig) -> dict[str, np.ndarray]:
    """Return two sentences as tokens; with choices, each of them followed by either."""
    texts: tuple[list[str], ...] = (list(_TEXTS),)
    if _is_choice(config):
        texts = [text for text in _TEXTS for _ in _TEXTS], list(_TEXTS) * _ROWS
    longest = getattr(text_part(config.config), "max_position_embeddings", None)
    # Some models keep two places for themselves.
    limit = {"truncation": True, "max_length": int(longest) - 2} if longest else {}
    with _padding(tokenizer):
        encoded = _call(tokenizer, *texts, padding=True, **limit)
    found = {name: values.astype(np.int64) for name, values in encoded.items()}
    if _is_choice(config):
        found = {
            name: values.reshape(_ROWS, _ROWS, *values.shape[1:]) for name, values in found.items()
        }
    name = _text_name(config)
    found[name] = found.pop("input_ids")
    # A decoder gets the same text as its encoder.
    found["decoder_input_ids"] = found[name]
    if "attention_mask" in found:
        found["decoder_attention_mask"] = found["attention_mask"]
    return {each: values for each, values in found.items() if each in config.inputs}


@contextmanager
def _padding(tokenizer: Any) -> Iterator[None]:
    """Let a tokenizer without a token for padding pad, and give it back to its owner without one.

    Those of GPT-2 and others have none, and transformers pads no rows without one.
    """
    has_none = tokenizer.pad_token is None
    if has_none:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    try:
        yield
    finally:
        if has_none:
            tokenizer.pad_token = None


def _process_images(processor: Any, config: OnnxConfig) -> dict[str, np.ndarray]:
    """Return two images of random pixels as a model takes them."""
    name = _image_name(config)
    size = config.sizes_for_export
    channels = config.generate_dummy_inputs(size)[name].shape[1]
    random = np.random.default_rng(0)
    height = min(size.height * 2, _LARGEST_IMAGE)
    width = min(size.width * 2, _LARGEST_IMAGE)
    pixels = random.integers(0, 256, (_ROWS, height, width, channels), np.uint8)
    images = [image[..., 0] if channels == 1 else image for image in pixels]
    found = _call(processor, images=images)
    found[name] = found.pop("pixel_values").astype(np.float32)
    return {each: values for each, values in found.items() if each in config.inputs}


def _check(made: Mapping[str, np.ndarray], config: OnnxConfig, where: str, kind: str) -> None:
    """Return when what a preprocessor made is something that the model takes."""
    text, image = _text_name(config), _image_name(config)
    size = getattr(text_part(config.config), "vocab_size", None)
    if kind == "tokenizer" and size is not None and text in made:
        largest = int(made[text].max())
        if largest >= int(size):
            raise CheckpointError(
                f"The tokenizer in {where} makes tokens up to {largest}, but the model knows "
                f"{size} (vocab_size): they do not belong together. Put the model's own tokenizer "
                'there, or pass preprocessor="none" (--preprocessor none).'
            )
    if kind == "tokenizer" or image not in made or 2 in config.inputs[image]:
        return
    expected = config.generate_dummy_inputs(config.sizes_for_export)[image].shape[1:]
    if made[image].shape[1:] != expected:
        raise CheckpointError(
            f"The image processor in {where} makes images of {made[image].shape[1:]}, but the "
            f"model takes {expected} (channels, height, width): they do not belong together. Put "
            'the model\'s own there, or pass preprocessor="none" (--preprocessor none).'
        )


def _filled_up(made: Mapping[str, np.ndarray], config: OnnxConfig) -> dict[str, np.ndarray]:
    """Return all inputs of a model: what was made, and of the same sizes what was not."""
    text, image = _text_name(config), _image_name(config)
    size = config.sizes_for_export
    height, width = made[image].shape[2:] if image in made else (size.height, size.width)
    length = made[text].shape[-1] if text in made else size.sequence
    sizes = Sizes(
        batch=_ROWS,
        sequence=length,
        decoder_sequence=length,
        past=0,
        choices=_ROWS,
        height=height,
        width=width,
    )
    filled = config.generate_dummy_inputs(sizes)
    for name, values in made.items():
        filled[name] = values.astype(filled[name].dtype)
    return filled
