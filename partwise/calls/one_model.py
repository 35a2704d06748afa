"""Calls that train one model on all rows: by ranks that work together, or by trials."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, ClassVar

from partwise.calls.call import (
    FILES,
    FUNCTION,
    HOW,
    WHERE,
    CallKind,
    ExecutedCall,
    Role,
    RowsCall,
    VersionedCall,
    drawn_rows,
)
from partwise.choices import Direction, FitOn, OnExistingWhole
from partwise.engine.scaling import ScalingConfig
from partwise.environments.environment import DEFAULT_ENVIRONMENT, Environment
from partwise.form_schema import Nothing
from partwise.gangs.options import GangOptions
from partwise.tuning.pruner import PrunerName
from partwise.tuning.sampler import SamplerName

if TYPE_CHECKING:
    from partwise.calls.parameters import (
        DistributedTrainerParameter,
        EvalDataParameter,
        FilesParameter,
        HoldoutParameter,
        MetricParameter,
        OneParamsParameter,
        PathParameter,
        SerdeParameter,
        SpaceParameter,
        StudyTrainerParameter,
    )


@dataclass(frozen=True)
class DistributedCall(RowsCall, VersionedCall):
    """A call of `train_distributed`."""

    kind: ClassVar[CallKind] = "train-distributed"

    trainer: DistributedTrainerParameter = field(metadata=FUNCTION)
    """DistributedXGBoost or DistributedLightGBM with its settings, or "package.module:function": a
    function of (context: RankContext), which each rank calls; what it returns on rank 0 is the
    model, a Result or a Skip. From Python also the function itself, and a TorchDistributor."""
    _: KW_ONLY
    eval_data: EvalDataParameter = field(
        default_factory=dict, metadata=Role(decides=False, is_data=True).metadata
    )
    """Rows to measure the model on, by a name of yours: a mapping of name to data. For a function,
    any more rows: it finds them as `context.rows(name)` or `context.data(name)`, with whole=True
    all of them on every rank. Neither `filter` nor `columns` is for them."""
    serde: SerdeParameter = ""
    """How the model becomes a file: the name of a built-in serde such as "pickle". Empty: the
    native format of the model's library. From Python also a serde."""
    scaling: ScalingConfig = field(default_factory=ScalingConfig, metadata=HOW)
    """How many ranks work on the model, and what each may use."""
    params: OneParamsParameter = field(default_factory=dict)
    """Values by name, which a function finds as `context.params`."""
    seed: int = 0
    """All ranks have it, modulo 2**31, as `context.seed`."""
    resume_from: PathParameter = ""
    """Another run of the store, or a folder or URL, with a checkpoint that the ranks begin with,
    where the run has none of its own."""
    on_existing_artifacts: OnExistingWhole = field(default="error", metadata=WHERE)
    """When the run exists: "error", "overwrite" it, or "resume": do nothing where it has a model of
    the same rows, code and settings, and else begin again, from the last checkpoint where there is
    one."""
    gang: GangOptions = field(default_factory=GangOptions, metadata=HOW)
    """Time limit of an attempt, grace, retries."""
    environment: Environment = field(
        default=DEFAULT_ENVIRONMENT, metadata=Role(decides=False, is_newer=True).metadata
    )
    """Packages of the ranks' own, before those of the workers: resolved with uv on this machine,
    built once on each worker's. Empty: the workers' own."""


@dataclass(frozen=True)
class TuneCall(RowsCall, ExecutedCall):
    """A call of `tune_model`."""

    kind: ClassVar[CallKind] = "tune"

    trainer: StudyTrainerParameter = field(metadata=FUNCTION)
    """LightGBMTrainer or XGBoostTrainer, whose parameters are tuned; "package.module:function": a
    function of (data: DataConnector, context: PartitionContext), which finds the settings in
    context.params, returns a Result with the metric, and may call context.report(step=, metric=).
    Or DistributedXGBoost or DistributedLightGBM, or with `scaling` a function of a rank's context,
    which finds the settings in context.params: then a gang of ranks trains each trial.
    From Python also the function itself, and a TorchDistributor."""
    space: SpaceParameter = field(metadata=Role(function="maybe").metadata)
    """Parameters by name: uniform, loguniform, randint, choice, grid, or a constant each; or a
    function of an Optuna trial that returns settings by name, or its name."""
    _: KW_ONLY
    metric: MetricParameter = field(default="", metadata=Role(function="maybe").metadata)
    """What tells better settings: a name, or that of a function of (labels, predictions). Empty:
    rmse, or logloss for classes. Of a train function: the name of one of the metrics that it
    returns. From Python also the function itself."""
    direction: Direction = ""
    """Which values are better; empty: as the name says, and else lower ones."""
    trials: int = field(default=50, metadata=HOW)
    """How many settings are tried."""
    max_duration_s: float | Nothing = field(default=None, metadata=HOW)
    """Seconds after which no other trial begins."""
    patience: int | Nothing = field(default=None, metadata=HOW)
    """No other trial begins when so many in a row were no better than the best."""
    max_concurrent: int | Nothing = field(default=None, metadata=HOW)
    """Trials that run at once, at most. Default: as many as the cluster has room for, with the CPUs
    and GPUs of a partition in `execution`, or of its ranks in `scaling`."""
    sampler: SamplerName = field(default="tpe", metadata=HOW)
    """"tpe", "random", "grid" (all there are), or "gp" (needs torch and scipy)."""
    pruner: PrunerName = field(default="none", metadata=HOW)
    """Which trials are given up, by what they report: "none", "median", "percentile", "halving" or
    "hyperband"."""
    holdout: HoldoutParameter = field(default_factory=drawn_rows)
    """The rows that a built-in trainer is scored on: the same for all trials."""
    fit_on: FitOn = "auto"
    """The rows that the kept model of a built-in trainer is trained on."""
    scaling: ScalingConfig = field(default_factory=ScalingConfig, metadata=HOW)
    """How many ranks train a trial together, and what each of them may use. Where their number is
    given, trials run side by side as far as the cluster has room."""
    eval_data: EvalDataParameter = field(
        default_factory=dict, metadata=Role(decides=False, is_data=True).metadata
    )
    """A second table, by a name of yours: the rows that a built-in trainer is scored on, in place
    of a holdout, and not trained on. For ranks any more rows by name: the model of a distributed
    trainer is measured on each of them."""
    serde: SerdeParameter = ""
    """How models become files: the name of a built-in serde such as "pickle". Empty: the native
    format of the model's library. From Python also a serde."""
    files: FilesParameter = field(default=(), metadata=FILES)
    """Paths or URLs of files that the function reads besides the rows: a resume begins a new study
    when one of them has changed."""
    seed: int = 0
    """What is tried follows from it, where trials run one at a time; all trials have it."""
    on_existing_artifacts: OnExistingWhole = field(default="error", metadata=WHERE)
    """When the run exists: "error", "overwrite" it, or "resume": keep the trials of the same rows,
    code and space, tell the sampler of them, and run the rest."""
