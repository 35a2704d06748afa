"""`partwise transformers`: models of Hugging Face as files, each proved before it is kept."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from partwise.choices import Preprocessor, TransformersFormat
from partwise.errors import InputError
from partwise.flows.cli.exit_codes import FAILURE, SUCCESS
from partwise.flows.cli.output import console, print_json, print_table, tell
from partwise.flows.cli.parsing import COMMON, build_settings, given_options
from partwise.flows.cli.transformers_log import (
    print_log,
    print_mismatch,
    print_start,
    table_of,
)

if TYPE_CHECKING:
    from partwise.transformers.checkpoints import OwnConfig
    from partwise.transformers.options import TransformersOptions
    from partwise.transformers.report import ExportReport

transformers = App(
    name="transformers",
    help="Export models of Hugging Face's transformers, and check such exports.",
    default_parameter=COMMON,
)

Json = Annotated[bool, Parameter(name="--json", help="Print one JSON object on stdout.")]
Model = Annotated[
    str,
    Parameter(
        name="MODEL",
        help="A directory with config.json and weights, as save_pretrained writes it; or, where "
        "there is a network, the ID of a model on the hub.",
    ),
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ComparisonOptions:
    """How an export is compared with its model.

    The fields of `TransformersOptions` are written again here: to import that class takes a second
    and brings pyarrow along, which help can do without.
    """

    atol: float | None = None
    """Values may differ by atol + rtol * |expected|. Default: in place of atol, a part of the size
    that values of the output have, the architecture's own."""
    rtol: float | None = None
    """See --atol. Default: 0.0001, or that of your --config."""
    preprocessor: Preprocessor | None = None
    """What makes real inputs to compare on, besides random ones: auto takes what lies beside the
    model and works, none takes random ones only. Default: auto."""
    longest_text: int | None = None
    """Tokens of the longest text that is compared. Default: as many as the model takes, where 4 GiB
    of memory suffice, and 300 where it takes any number."""
    quantize: Literal["int8", "none"] | None = None
    """int8: weights of matrix products have 8 bits (onnx only); such a file is judged by how far
    its outputs move. Default: none."""
    max_metric_loss: float | None = None
    """By how much int8 may move each output, as a fraction of its own spread. Default: 0.1."""
    full_attention: bool = False
    """Let a BigBird of block-sparse attention look at all tokens, as it does for short texts. For
    long ones it then gives other values. Without this it is refused."""
    config: str = ""
    """An OnnxConfig of your own, for an architecture that is not in the table or is wanted
    differently: package.module:Class."""
    trust_remote_code: bool = False
    """Run Python code that comes with the model. Off unless you trust its author."""

    def build(self) -> "TransformersOptions":
        """Return the options that an export or a check takes.

        Raises:
            InputError: A number is out of bounds.
        """
        from partwise.transformers.options import TransformersOptions

        options = given_options(vars(self))
        options.pop("config", None)
        if "external_data" in options:
            options["external_data"] = "always"
        return build_settings(TransformersOptions, **options)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CheckpointOptions(ComparisonOptions):
    """How a model becomes a file."""

    format: TransformersFormat | None = None
    """onnx runs anywhere; torchscript and pt2 where torch is installed; neuron on AWS Neuron.
    Default: onnx."""
    opset: int | None = None
    """The version of ONNX' operators, 11 to 25; those before 18 are written from a trace. Default:
    the architecture's own."""
    external_data: bool = False
    """Put the weights into a file beside the model, model.onnx.data, even if they are small."""
    batch_size: int | None = None
    """Rows of a call that torchscript is traced with, and that neuron is fixed to. Default: 1."""
    sequence_length: int | None = None
    """Tokens of a row that torchscript is traced with, and that neuron is fixed to.
    Default: 128."""


_CHECKPOINT, _COMPARISON = CheckpointOptions(), ComparisonOptions()


@transformers.command(name="export")
def export_model(
    model: Model,
    output: Annotated[
        Path | None,
        Parameter(
            name="OUTPUT",
            help="A folder, which is made and also gets config.json and the tokenizer's files; or "
            "the path of the one file, such as out/bert.onnx.",
        ),
    ] = None,
    /,
    *,
    named_model: Annotated[
        str,
        Parameter(
            name=("--model", "-m"),
            help="MODEL by a name, as `python -m transformers.onnx` had it. OUTPUT is then the one "
            "argument without.",
        ),
    ] = "",
    feature: Annotated[
        str,
        Parameter(
            help="What it is exported to do, such as sequence-classification or "
            "causal-lm-with-past; see `partwise transformers features`. default is the "
            "model without a head."
        ),
    ] = "default",
    settings: CheckpointOptions = _CHECKPOINT,
    as_json: Json = False,
) -> int:
    """Export a model, and keep the files only if they give what the model gives."""
    with _errors_as_json(as_json):
        if named_model:
            if output is not None:
                raise InputError(f"MODEL is given twice: {model} and --model {named_model}.")
            model, output = named_model, Path(model)
        if output is None:
            raise InputError("OUTPUT is missing: name a folder, or the path of the one file.")
        options = settings.build()
        own = _own_config(settings.config)
        print_start(model, feature, options)

        from partwise.transformers.checkpoint_export import export_checkpoint
        from partwise.transformers.export import TransformersMismatchError

        try:
            with redirect_stdout(sys.stderr):
                # Libraries print as they work; stdout is for the result alone.
                done = export_checkpoint(model, feature, output, options, own)
        except TransformersMismatchError as error:
            print_log(error.report, options)
            if as_json:
                _print_error(error)
            print_mismatch(error.report)
            return FAILURE
        print_log(done, options)
    file = _file_of(output, done)
    if as_json:
        print_json({**done.model_dump(mode="json"), "saved": str(file)})
    tell(f"All good, model saved at: {file}")
    return SUCCESS


@transformers.command(name="features")
def print_features(
    model_type: Annotated[
        str, Parameter(name="MODEL_TYPE", help="Such as bert. Default: a table of all.")
    ] = "",
    /,
    *,
    as_json: Json = False,
) -> int:
    """Show which architectures can be exported, and what each feature takes and gives."""
    with _errors_as_json(as_json):
        if not model_type:
            from partwise.transformers.architectures import ARCHITECTURES

            known = [(name, row.name, row.features) for name, row in ARCHITECTURES.items()]
            if as_json:
                fields = ("model_type", "name", "features")
                found = [dict(zip(fields, each, strict=True)) for each in known]
                return print_json({"architectures": found})
            rows = [(*names, ", ".join(features)) for *names, features in known]
            print_table(("model type", "name", "features"), rows)
            return SUCCESS

        from partwise.transformers.feature_table import describe_features
        from partwise.transformers.installed import check_installed

        check_installed()
        table = describe_features(model_type)
        if as_json:
            return print_json(table.model_dump(mode="json"))
        console().print(table_of(table), end="")
    return SUCCESS


@transformers.command(name="check")
def check_file(
    file: Annotated[
        Path,
        Parameter(
            name="FILE",
            help="The export: ONNX, whoever wrote it; or a .pt or .pt2 file that partwise wrote. "
            "Those two run code when they are read: check them only if you trust who gave them.",
        ),
    ],
    model: Model,
    /,
    *,
    feature: Annotated[
        str,
        Parameter(
            help="What it was exported for. Default: what its inputs and outputs say, and where "
            "that fits several features, the model's class in config.json; with --config, default."
        ),
    ] = "",
    settings: ComparisonOptions = _COMPARISON,
    as_json: Json = False,
) -> int:
    """Compare an export that exists with its model: names, shapes, values, and generated text.

    Of an encoder and a decoder with past, the file that reads the prompt, such as prefill.onnx, has
    to lie beside it and is checked too.
    """
    with _errors_as_json(as_json):
        options = settings.build()
        own = _own_config(settings.config)

        from partwise.transformers.check import check_export

        with redirect_stdout(sys.stderr):
            found = check_export(file, model, feature, options, own)
    tell(f"Feature: {found.feature}")
    print_log(found, options)
    if as_json:
        print_json(
            {**found.model_dump(mode="json"), "is_right": found.is_right, "checked": str(file)}
        )
    if found.is_right:
        tell(f"All good: {file}")
        return SUCCESS
    tell(f"error: {file} is not an export of {model} for {found.feature!r}.")
    return FAILURE


@contextmanager
def _errors_as_json(as_json: bool) -> Iterator[None]:
    """With --json, print an error as an object too; it is raised again, for the exit code."""
    try:
        yield
    except Exception as error:
        if as_json:
            _print_error(error)
        raise


def _print_error(error: Exception) -> None:
    described: dict[str, Any] = {"type": type(error).__name__, "message": str(error)}
    found = getattr(error, "report", None)
    if found is not None:
        described["report"] = found.model_dump(mode="json")
    print_json({"error": described})


def _own_config(name: str) -> "OwnConfig | None":
    """Return the class that --config names, or None.

    Raises:
        FunctionError: There is none, or it is not an OnnxConfig.
    """
    from partwise.errors import FunctionError
    from partwise.trainers.resolving import import_named
    from partwise.transformers.onnx_config import OnnxConfig

    if not name:
        return None
    module, _, class_name = name.partition(":")
    if not class_name:
        raise FunctionError(f"{name!r} does not name a class: write 'package.module:Class'.")
    found: Callable[..., Any] = import_named(repr(name), module, class_name)
    if not (isinstance(found, type) and issubclass(found, OnnxConfig)):
        raise FunctionError(
            f"{name!r} is not an OnnxConfig: derive a class from partwise.transformers.OnnxConfig."
        )
    return found


def _file_of(output: Path, done: "ExportReport") -> Path:
    name = done.files[-1].name
    return output if output.name == name else output / name
