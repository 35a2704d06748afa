"""Loading: a checkpoint's configuration and model, as transformers reads them."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from partwise.errors import CheckpointError
from partwise.tables.column_names import names_in_words
from partwise.transformers.checkpoint_files import brief
from partwise.transformers.flat_model import flat_model, flattened, nested, prepared
from partwise.transformers.onnx_config import OnnxConfig
from partwise.transformers.quiet import quiet

_MOST_NAMED = 5


def load_config(folder: Path, *, trusts_code: bool) -> Any:
    """Return a model's configuration, a `transformers.PreTrainedConfig`."""
    import transformers

    try:
        with quiet():
            # A plain False, for at None the library asks whoever sits at the keyboard.
            return transformers.AutoConfig.from_pretrained(folder, trust_remote_code=trusts_code)
    except Exception as error:  # the code of a model can raise anything
        raise CheckpointError(_why_not(folder, error)) from error


def load_model(
    folder: Path, model_config: Any, auto_class: str, *, trusts_code: bool
) -> tuple[Any, frozenset[str]]:
    """Return a model in single precision on the CPU, and the names of weights that it lacks.

    `auto_class` is the class of transformers that knows which class it is.
    """
    import torch
    import transformers

    # Where several classes do it, transformers 5.23 goes through these, even if there are none.
    model_config.architectures = model_config.architectures or []
    try:
        with quiet():
            model, info = getattr(transformers, auto_class).from_pretrained(
                folder,
                config=model_config,
                dtype=torch.float32,
                trust_remote_code=trusts_code,
                local_files_only=not trusts_code,
                # A .bin file is a pickle: with this, no code of it runs.
                weights_only=True,
                # They are refused below, by name.
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
    except MemoryError:
        raise
    except Exception as error:  # of torch, safetensors and transformers there are dozens
        raise CheckpointError(_why_not(folder, error)) from error
    if info["mismatched_keys"]:
        name, found, expected = sorted(info["mismatched_keys"])[0]
        raise CheckpointError(
            f"The weights in {folder} are not those of its config.json: {name!r} has the shape "
            f"{tuple(found)}, where {type(model).__name__} takes {tuple(expected)}"
            f"{_and_others(len(info['mismatched_keys']) - 1)}."
        )
    return model.eval(), frozenset(info["missing_keys"])


def check_missing(model: Any, config: OnnxConfig, missing: Collection[str], folder: Path) -> None:
    """Return when no output depends on weights that a checkpoint lacks, such as a pooler's.

    transformers fills them with random numbers and only warns, so that an export would be noise.
    """
    if not missing:
        return
    needed = sorted(needed_weights(model, config, missing))
    if not needed:
        return
    named = names_in_words(needed[:_MOST_NAMED])
    raise CheckpointError(
        f"The weights in {folder} lack what {type(model).__name__} needs for {config.task!r}: "
        f"{named}{_and_others(len(needed) - _MOST_NAMED)}. They would be random numbers: choose a "
        "feature that the model was trained for, or train it for this one first."
    )


def needed_weights(model: Any, config: OnnxConfig, missing: Collection[str]) -> set[str]:
    """Return the names of those weights that some output depends on, by its derivative."""
    import torch

    parameters = {
        name: parameter
        # Under every name of a tied one: a name that is not found here counts as needed.
        for name, parameter in model.named_parameters(remove_duplicate=False)
        if name in missing
    }
    needed = set(missing) - set(parameters)
    feeds = config.generate_dummy_inputs(config.sizes_for_export)
    tensors = {name: torch.tensor(values) for name, values in feeds.items()}
    try:
        with prepared(model, config), torch.enable_grad():
            found = flattened(flat_model(model, config)(**nested(tensors)))
            total = sum(found[name].sum() for name in config.outputs)
            slopes = torch.autograd.grad(total, list(parameters.values()), allow_unused=True)
    except RuntimeError:
        # Where nothing has a derivative, any of them may be needed.
        return set(missing)
    return needed | {
        name for name, slope in zip(parameters, slopes, strict=True) if slope is not None
    }


def _why_not(folder: Path, error: BaseException) -> str:
    if "trust_remote_code" in str(error):
        return (
            f"The model in {folder} comes with Python code of its own, which is not run unless you "
            "trust its author: pass trust_remote_code=True (--trust-remote-code)."
        )
    return f"The model in {folder} cannot be read: {brief(error)}."


def _and_others(count: int) -> str:
    return f", and {count} more" if count > 0 else ""
