"""How a model of transformers is exported, and how the export is proved."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from partwise.choices import Preprocessor, TransformersFormat
from partwise.form_schema import FormSettings
from partwise.models.export_options import EMBEDDED_BYTES


class TransformersOptions(FormSettings):
    """How a model of transformers becomes a file. The defaults suit most models."""

    model_config = ConfigDict(title="Transformers export options")

    format: TransformersFormat = Field(
        default="onnx",
        description='"onnx" runs anywhere; "torchscript" and "pt2" where torch is installed; '
        '"neuron" on AWS Neuron.',
    )
    opset: Annotated[int, Field(ge=1)] | SkipJsonSchema[None] = Field(
        default=None,
        description="The version of ONNX' operators, 11 to 25; those before 18 are written from a "
        "trace. Default: the architecture's own.",
    )
    atol: Annotated[float, Field(ge=0)] | SkipJsonSchema[None] = Field(
        title="Absolute tolerance",
        default=None,
        description="Values may differ by atol + rtol * |expected|. Default: in place of atol, a "
        "part of the size that values of the output have, the architecture's own.",
    )
    rtol: Annotated[float, Field(ge=0)] | SkipJsonSchema[None] = Field(
        title="Relative tolerance",
        default=None,
        description="See the absolute tolerance.",
    )
    quantize: Literal["none", "int8"] = Field(
        default="none",
        description='"int8": weights of matrix products have 8 bits, as ONNX only; judged by how '
        "far the outputs move, since values do differ.",
    )
    max_metric_loss: float = Field(
        title="Loss allowed by int8",
        default=0.1,
        ge=0,
        description="By how much each output may move, as a fraction of its own spread.",
    )
    external_data: Literal["auto", "always"] = Field(
        title="Weights beside the model",
        default="auto",
        description=f'"auto": where they have more than {EMBEDDED_BYTES:,} bytes. "always": in '
        "model.onnx.data.",
    )
    preprocessor: Preprocessor = Field(
        default="auto",
        description='What makes real inputs to compare on besides random ones. "auto": what stands '
        'beside the model; "none": random ones only.',
    )
    batch_size: int = Field(
        default=1,
        ge=1,
        description="Rows that torchscript is traced with, and that neuron is fixed to.",
    )
    sequence_length: int = Field(
        default=128,
        ge=2,
        description="Tokens of a row that torchscript is traced with, and that neuron is fixed to.",
    )
    longest_text: Annotated[int, Field(ge=1)] | SkipJsonSchema[None] = Field(
        default=None,
        description="Tokens of the longest text that is compared. Default: as many as the model "
        "takes, where 4 GiB of memory suffice, and 300 where it takes any number.",
    )
    generated_tokens: int = Field(
        default=8,
        ge=0,
        description="With past: so many tokens are generated, and have to be the model's own.",
    )
    full_attention: bool = Field(
        default=False,
        description="Let a BigBird of block-sparse attention look at all tokens, as it does for "
        "short texts. Without this it is refused: no file has block-sparse attention.",
    )
    trust_remote_code: bool = Field(
        default=False,
        description="Run Python code that comes with the model. Off unless you trust its author.",
    )
