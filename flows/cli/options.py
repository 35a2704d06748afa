"""The options that several commands share: rows, run, execution, cluster, trainer, inference.

Settings that are a model without heavy imports are options themselves, such as `Execution`. The
classes here are for the others: a trainer is one of three kinds (its models need pyarrow), and a
cluster one of four Prefect blocks, made when the call is; rows, run and inference are parameters
of flows, no models. What needs Prefect, Dask or pyarrow is imported by the methods that use it, so
that help is fast.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from partwise.engine.options import ExecutionOptions
from partwise.errors import InputError
from partwise.flows.cli.evaluation_options import EvaluationOptions
from partwise.flows.cli.parsing import (
    build_settings,
    flag,
    given_options,
    parse_condition,
    parse_parameter,
    split_names,
)
from partwise.formatting import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

    from partwise.calls.call import CallKind
    from partwise.flows.orchestration.block_parameters import Cluster
    from partwise.trainers import HoldoutTrainer

Names = tuple[str, ...]
_SETTINGS = (
    *("label", "features", "categorical", "calendar", "rounds", "early_stopping_rounds"),
    *("classes", "min_rows", "threads", "predicts", "season", "time"),
)
"""Options of a trainer that are settings of the same name, of those trainers that have them."""
StoreUrl = Annotated[str, Parameter(env_var="PARTWISE_STORE")]
Json = Annotated[bool, Parameter(name="--json")]
RunId = Annotated[str, Parameter(name="RUN")]

TRAINER, INFERENCE, ROWS, RUN, EXECUTION, CLUSTER = (
    Group(name, sort_key=place)
    for place, name in enumerate(("Trainer", "Inference", "Rows", "Run", "Execution", "Cluster"))
)

InputFiles = Annotated[
    Names,
    Parameter(
        group=ROWS,
        help="A file, folder, glob or URL that the function reads besides its rows; a resume "
        "compares its checksum. Given several times for several.",
    ),
]
Execution = Annotated[ExecutionOptions, Parameter(name="*", group=EXECUTION)]


@Parameter(name="*", group=ROWS)
@dataclass(frozen=True, kw_only=True)
class RowOptions:
    """Which rows, and what makes a partition of them."""

    partition_by: Annotated[Names, Parameter(alias="-p")]
    """The key column, or several: store,date. Rows of equal keys are a partition."""
    where: Names = ()
    """Rows to keep, such as "price > 0", "day < 2026-01-01" or "store in a,b". Given several times,
    all must hold. Text that looks like a number is quoted: 'zip = "01234"'."""
    columns: Names = ()
    """Columns to read. Default: all."""
    null_keys: Literal["error", "drop", "keep"] = "error"
    """What becomes of rows with a null key."""

    def arguments(self) -> dict[str, Any]:
        """Return them as arguments of a flow.

        Raises:
            InputError: A condition cannot be read.
        """
        return {
            "partition_by": split_names(self.partition_by),
            "filter": [parse_condition(text) for text in self.where] or None,
            "columns": split_names(self.columns) or None,
            "null_keys": self.null_keys,
        }


@Parameter(name="*", group=ROWS)
@dataclass(frozen=True, kw_only=True)
class InferredRowOptions(RowOptions):
    """Which rows, where one model may be for all of them."""

    partition_by: Annotated[Names, Parameter(alias="-p")] = ()
    """The key column, or several: store,date. Rows of equal keys are a partition. With the one
    model of train-distributed or tune none is needed: blocks of rows are partitions."""


@Parameter(name="*", group=RUN)
@dataclass(frozen=True, kw_only=True)
class FollowingRunOptions:
    """The run's name and place; its seed is that of the run that it follows."""

    run_id: str = ""
    """A name for the run: letters, digits, "-" and "_". Default: one is made up."""
    store: StoreUrl = "artifacts"
    """The artifact store: a folder, or a URL such as s3://bucket/folder."""
    on_existing_artifacts: Literal["error", "overwrite", "resume"] = "error"
    """When the run exists: refuse, begin again, or run only what changed or is not done."""
    version: str | None = None
    """Your own word for the version of your code, compared by a resume in place of the code."""

    def arguments(self, kind: "CallKind") -> dict[str, Any]:
        """Return them as arguments of a flow; a run without a name gets one, by its kind."""
        from partwise.flows.orchestration.run_ids import new_run_id

        return {**vars(self), "run_id": self.run_id or new_run_id(kind)}


@Parameter(name="*", group=RUN)
@dataclass(frozen=True, kw_only=True)
class RunOptions(FollowingRunOptions):
    """The run's name, place and seed."""

    seed: int = 0
    """Every partition's own seed is derived from this one and its key."""


_OF_ADDRESS = ("tls_ca_file", "tls_cert_file", "tls_key_file", "connect_timeout_s")
_GOES_WITH: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_OF_ADDRESS, ("address",)),
    **dict.fromkeys(("allow_plaintext", "shares_filesystem"), ("address", "cluster_class")),
    **dict.fromkeys(("cluster_argument", "start_timeout_s"), ("cluster_class",)),
}
"""Options of a cluster that say nothing without another one."""


@Parameter(name="*", group=CLUSTER)
@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """Which Dask cluster does the work; by default one process for each core of this machine."""

    workers: Annotated[int | None, Parameter(validator=Number(gte=0))] = None
    """Worker processes on this machine. Default: one for each core. With --cluster-class: so many
    of its workers."""
    devices: str | None = None
    """One worker for each of these GPUs of this machine: 0,1 or "all". Needs the extra cuda."""
    cluster_class: str | None = None
    """A cluster of this class, started for the run, such as dask_jobqueue.SLURMCluster."""
    cluster_argument: Names = ()
    """With --cluster-class: an argument of the class, such as cores=8; may be repeated."""
    max_workers: int | None = None
    """Grow up to so many workers while there is work for them."""
    start_timeout_s: float | None = None
    """With --cluster-class: how many seconds scheduler and workers may take. Default: 600."""
    address: str | None = None
    """A Dask scheduler that runs already, such as tls://scheduler.example.org:8786."""
    tls_ca_file: str = ""
    """With tls:// addresses: the certificate of the authority (PEM)."""
    tls_cert_file: str = ""
    """With tls:// addresses: the certificate that this client shows (PEM)."""
    tls_key_file: str = ""
    """With tls:// addresses: the key of that certificate (PEM)."""
    connect_timeout_s: float | None = None
    """How many seconds to wait for the scheduler's answer. Default: 30."""
    allow_plaintext: bool = False
    """Allow a scheduler elsewhere without TLS, on a network where everyone may run code."""
    shares_filesystem: bool = False
    """The workers, which are not of this machine, see its files under the same paths."""

    @property
    def is_local(self) -> bool:
        """Whether they name worker processes of this machine, of partwise's own."""
        return not (self.devices or self.cluster_class or self.address)

    def checked(self) -> "Self":
        """Return these very options, which do not contradict each other.

        Raises:
            InputError: They do.
        """
        options = given_options(vars(self))
        naming = ("devices", "address", "cluster_class")
        chosen = [name for name in naming if name in options]
        if chosen != ["cluster_class"]:
            local = [name for name in ("workers", "max_workers") if name in options]
            chosen = local[:1] + chosen
        if len(chosen) > 1:
            flags = " and ".join(flag(name) for name in chosen)
            raise InputError(f"{flags} name different clusters: give one of them.")
        for name in options:
            wanted = _GOES_WITH.get(name, ())
            if wanted and not set(wanted) & options.keys():
                flags = " or ".join(flag(one) for one in wanted)
                raise InputError(f"{flag(name)} goes with {flags}: give that as well.")
        self._arguments()
        return self

    def build(self) -> "Cluster":
        """Return the cluster of a flow: a block, for which Prefect is imported.

        Raises:
            InputError: The options contradict each other, or the address is refused.
        """
        from partwise.blocks import CudaCluster, CustomCluster, LocalCluster, RemoteCluster

        options = given_options(vars(self.checked()))
        if self.address is not None:
            return build_settings(RemoteCluster, **options)
        if self.devices is not None:
            return build_settings(
                CudaCluster, devices="" if self.devices == "all" else self.devices
            )
        if self.cluster_class is not None:
            options.pop("cluster_argument", None)
            return build_settings(CustomCluster, arguments=self._arguments(), **options)
        return build_settings(LocalCluster, **options)

    def _arguments(self) -> dict[str, Any]:
        return dict(parse_parameter(text, "--cluster-argument") for text in self.cluster_argument)


@Parameter(name="*", group=TRAINER)
@dataclass(frozen=True, kw_only=True)
class TrainerOptions(EvaluationOptions):
    """What trains, and the settings of the trainers that need no code."""

    trainer: str
    """lightgbm, xgboost, linear, random_forest, seasonal_naive, last_value, mean, statsforecast;
    best of several --candidate; or a function of your own: package.module:function."""
    candidate: Names = ()
    """With --trainer best: one of these trainers, a class of statsforecast such as AutoARIMA, or a
    function of your own. Given several times for several."""
    metric: str | None = None
    """What candidates, or settings that are searched, are compared by: rmse, mae, wape, smape,
    mase, logloss, auc, or a function of (labels, predictions), package.module:function; where a
    function of your own is tuned, one that it returns. Default: rmse, or logloss for classes."""
    label: str | None = None
    """The column to be predicted. Default: the one that a dataset marks as its label."""
    classes: Names = ()
    """All classes of the label, such as no,yes, in the order of a model's outputs. Default: they
    are counted from 0."""
    features: Names = ()
    """The columns to predict from. Default: all but the label, the keys and the holdout's time."""
    categorical: Names = ()
    """Features whose values are categories."""
    calendar: Names = ()
    """Dates and times whose year, month, weekday, hour and so on are features. Single ones are
    named in --features, as day@month."""
    param: Names = ()
    """A parameter of the library by its own name, such as num_leaves=15; may be repeated. With
    --trainer best, that of a candidate: lightgbm.num_leaves=15."""
    rounds: int | None = None
    """The most boosting rounds. Default: 100."""
    early_stopping_rounds: int | None = None
    """Stop when the holdout has not improved for so many rounds."""
    min_rows: int | None = None
    """A partition with fewer rows to train on is skipped. Default: 10."""
    threads: int | None = None
    """Threads for one model, or more where --cpus is more. Default: 1."""
    predicts: Literal["regression", "binary", "multiclass"] | None = None
    """What linear models, random forests and means predict. Default: regression."""
    time: str | None = None
    """The time column of seasonal_naive, last_value and models of statsforecast. Default: that of
    the holdout."""

    def build(self, *, is_tuned: bool = False) -> "HoldoutTrainer | str":
        """Return the trainer, or the name of a function.

        Args:
            is_tuned: Whether its settings are searched, which --metric is for as well.

        Raises:
            InputError: A setting is wrong, or does not go with the trainer.
        """
        given = given_options(vars(self))
        del given["trainer"]
        if is_tuned:
            given.pop("metric", None)
        if ":" in self.trainer:
            if given:
                raise InputError(
                    f"{flag(next(iter(given)))} is a setting of partwise's own trainers; "
                    f"{self.trainer} has its own: leave it out."
                )
            return self.trainer
        if self.trainer == "best":
            return self._best()
        for name in ("candidate", "metric"):
            if name in given:
                raise InputError(
                    f"{flag(name)} goes with --trainer best{', or --tune' * (name == 'metric')}."
                )
        params = dict(parse_parameter(text) for text in self.param)
        return self._ready(self.trainer, "--trainer", params, self.evaluation(), strict=True)

    def _best(self) -> "HoldoutTrainer":
        from partwise.trainers import Best

        if not self.candidate:
            raise InputError("--trainer best goes with --candidate: name what it chooses among.")
        names = split_names(self.candidate)
        params: dict[str, dict[str, Any]] = {name: {} for name in names}
        for text in self.param:
            path, value = parse_parameter(text)
            name, dot, parameter = path.partition(".")
            if not dot or name not in params:
                raise InputError(
                    f"--param {text!r} names no candidate: write {names[0]}.name=value."
                )
            params[name][parameter] = value
        candidates = [
            name if ":" in name else self._ready(name, "--candidate", params[name], {})
            for name in names
        ]
        settings = given_options({"label": self.label, "metric": self.metric})
        settings["classes"] = tuple(split_names(self.classes))
        return build_settings(Best, candidates=candidates, **settings, **self.evaluation())

    def _ready(
        self,
        name: str,
        option: str,
        params: "Mapping[str, Any]",
        holdout: "Mapping[str, Any]",
        *,
        strict: bool = False,
    ) -> "HoldoutTrainer":
        """Return a trainer by its kind, with those of the settings given that it has.

        Args:
            name: Its kind, or a class of statsforecast.
            option: Which gave the name.
            params: Of its library.
            holdout: The setting of this name, if there is one.
            strict: Refuse settings that it does not have.
        """
        from partwise.trainers import READY_TRAINERS

        settings: dict[str, Any] = {**holdout}
        kind = READY_TRAINERS.get(name)
        if kind is None and name[:1].isupper():
            kind, settings["model"] = READY_TRAINERS["statsforecast"], name
        if kind is None:
            raise InputError(
                f"{option} {name!r} is not known: give {', '.join(READY_TRAINERS)}, "
                f"{'best, ' if strict else ''}or package.module:function."
                f"{did_you_mean(name, [*READY_TRAINERS, 'best'])}"
            )
        for field in _SETTINGS:
            value = getattr(self, field)
            if value is None or value == ():
                continue
            if field in kind.model_fields:
                is_names = field in ("features", "categorical", "calendar", "classes")
                settings[field] = tuple(split_names(value)) if is_names else value
            elif strict and field != "season":
                raise InputError(f"{flag(field)} is no setting of the trainer {name}.")
        if params:
            settings["params"] = params
        make: Callable[..., HoldoutTrainer] = kind
        return build_settings(make, **settings)


@Parameter(name="*", group=INFERENCE)
@dataclass(frozen=True, kw_only=True)
class InferenceOptions:
    """Whose models are used, and how."""

    training_run_id: str
    """The run, in the same store, whose models are used."""
    format: Literal["native", "onnx", "torchscript", "pt2", "neuron"] = "native"
    """The trained models, or their exports to a format."""
    predict: str | None = None
    """Your own function of (data, model, context): package.module:function. Default: the model's
    own prediction."""
    keep_columns: Names = ()
    """Columns of the rows to keep with the predictions, such as a date."""
    on_missing_model: Literal["fail", "skip"] = "fail"
    """What becomes of a partition without a model."""

    def arguments(self) -> dict[str, Any]:
        """Return them as arguments of the flow."""
        return {**vars(self), "keep_columns": split_names(self.keep_columns) or None}
