"""The options that several commands share and a shell types in another way: cluster and trainer.

All others are the fields of calls, see `partwise.flows.cli.command`. A trainer is one of three
kinds, and a cluster one of four Prefect blocks: here each setting is an option. What needs Prefect,
Dask or pyarrow is imported by the methods that use it, so that help is fast.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from partwise.choices import Task
from partwise.errors import InputError
from partwise.flows.cli.evaluation_options import EvaluationOptions
from partwise.flows.cli.parsing import (
    build_settings,
    by_name,
    flag,
    given_options,
    parse_parameter,
    split_names,
)
from partwise.formatting import did_you_mean
from partwise.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Self

    from cyclopts import Token

    from partwise.flows.orchestration.block_parameters import Cluster
    from partwise.trainers import HoldoutTrainer

Names = tuple[str, ...]
_SETTINGS = (
    *("label", "features", "categorical", "calendar", "rounds", "early_stopping_rounds"),
    *("classes", "min_rows", "threads", "predicts", "season", "time", "intervals"),
    "quantiles",
)
"""Options of a trainer that are settings of the same name, of those trainers that have them."""
_OF_LAGS = ("horizon", "strategy")
StoreUrl = Annotated[str, Parameter(env_var="PARTWISE_STORE")]
"""The store of a call, as it is written down in its run: a folder, a URL, or a saved block."""


def _opened(_: type, tokens: "Sequence[Token]") -> Store | str:
    """Return the store of a saved block, such as store-block/prod, or a folder or URL as it is."""
    text = tokens[0].value
    # Prefect, which knows blocks, takes a second to import.
    if not text.startswith(("store-block/", "artifact-store/")):
        return text
    from partwise.flows.orchestration.saved_blocks import open_store

    opened: Store = open_store(text)
    return opened


AnyStore = Annotated[
    Store | str,
    Parameter(
        env_var="PARTWISE_STORE",
        converter=_opened,
        accepts_keys=False,
        help="A folder, a URL such as s3://bucket/folder, or a saved block, store-block/NAME.",
    ),
]
"""The store that a command looks into."""
Json = Annotated[bool, Parameter(name="--json")]
RunId = Annotated[str, Parameter(name="RUN", help="The run's ID.")]
Force = Annotated[bool, Parameter(help="Replace a file that is there.")]
Yes = Annotated[bool, Parameter(name="--yes", alias="-y", help="Do not ask.")]
Count = Annotated[int, Parameter(validator=Number(gte=1))]
Days = Annotated[float, Parameter(validator=Number(gte=0, lte=36_500))]
"""An age. Of more than 100 years the moment may be none that a calendar has."""

TRAINER, ROWS, RUN, EXECUTION, CLUSTER = (
    Group(name, sort_key=place)
    for name, place in {"Trainer": 0, "Rows": 2, "Run": 3, "Execution": 4, "Cluster": 5}.items()
)


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

    cluster: str = ""
    """One that is saved, such as cuda-cluster/big; for a script also work-pool/NAME, in which the
    whole call is then carried out."""
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

    def checked(self) -> "Self | str":
        """Return these very options, which do not contradict each other; or the name that they are.

        Raises:
            InputError: They do.
        """
        options = given_options(vars(self))
        naming = ("cluster", "devices", "address", "cluster_class")
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
        return self.cluster or self

    def build(self) -> "Cluster":
        """Return the cluster of a flow: a block, for which Prefect is imported.

        Raises:
            InputError: The options contradict each other, there is no cluster of the name, or the
                address is refused.
        """
        from partwise.blocks import CudaCluster, CustomCluster, LocalCluster, RemoteCluster
        from partwise.flows.running.connections import open_cluster

        if isinstance(named := self.checked(), str):
            return open_cluster(named)
        options = given_options(vars(self))
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
        option = "--cluster-argument"
        return by_name((parse_parameter(text, option) for text in self.cluster_argument), option)


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
    predicts: Task | None = None
    """What linear models, random forests and means predict. Default: regression."""
    time: str | None = None
    """The time column of seasonal_naive, last_value, models of statsforecast, and with --lags.
    Default: that of the holdout."""
    intervals: Names = ()
    """Shares of labels, such as 0.8,0.95, that are to lie between two columns beside predictions,
    prediction_lower_80 and prediction_upper_80, by the errors on the rows held out."""
    quantiles: Names = ()
    """Quantiles of the label, such as 0.1,0.9, that lightgbm and xgboost predict in columns beside
    it, prediction_q10 and so on."""
    lags: Names = ()
    """How many steps of time before a row lie the labels that are its features, such as 1,7:
    lightgbm, xgboost, linear and random_forest forecast series with them."""
    lag_means: Names = ()
    """With --lags: means of so many labels in a row, such as 7,28, are features as well."""
    horizon: int | None = None
    """With --lags: how many steps of time a model predicts at most. Default: 100."""
    strategy: Literal["recursive", "direct"] | None = None
    """With --lags: one model, which goes on from its own forecasts, or one for each step. Default:
    recursive."""

    def build(self, *, is_tuned: bool = False) -> "HoldoutTrainer | str":
        """Return the trainer, or the name of a function.

        Args:
            is_tuned: Whether its settings are searched, which --metric is for as well.

        Raises:
            InputError: A setting is wrong, or does not go with the trainer.
        """
        given = given_options(vars(self))
        del given["trainer"]
        for name in ("lag_means", *_OF_LAGS):
            if name in given and "lags" not in given:
                raise InputError(f"{flag(name)} goes with --lags: give both.")
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
        params = by_name(map(parse_parameter, self.param), "--param")
        return self._ready(self.trainer, "--trainer", params, self.evaluation(), strict=True)

    def _best(self) -> "HoldoutTrainer":
        from partwise.trainers import Best

        if not self.candidate:
            raise InputError("--trainer best goes with --candidate: name what it chooses among.")
        names = split_names(self.candidate)
        params: dict[str, dict[str, Any]] = {name: {} for name in names}
        for path, value in by_name(map(parse_parameter, self.param), "--param").items():
            name, dot, parameter = path.partition(".")
            if not dot or name not in params:
                raise InputError(
                    f"--param {path!r} names no candidate: write {names[0]}.name=value."
                )
            params[name][parameter] = value
        candidates = [
            # Without a holdout of its own: all candidates are scored on that of `Best`.
            name if ":" in name else self._ready(name, "--candidate", params[name], {})
            for name in names
        ]
        settings = given_options({"label": self.label, "metric": self.metric})
        settings["classes"] = tuple(split_names(self.classes))
        settings["intervals"] = tuple(split_names(self.intervals))
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

        `name` is its kind, or a class of statsforecast; `holdout` the setting of this name, if
        there is one. With `strict`, settings that it does not have are refused.
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
            of_best = field == "intervals" and not strict
            if value is None or value == () or of_best:
                continue
            if field in kind.model_fields:
                is_names = isinstance(value, tuple)
                settings[field] = tuple(split_names(value)) if is_names else value
            # A season goes with a backtest as well, whichever trainer it scores.
            elif strict and field != "season" and not (field == "time" and self.lags):
                raise InputError(f"{flag(field)} is not a setting of the trainer {name}.")
        if params:
            settings["params"] = params
        make: Callable[..., HoldoutTrainer] = kind
        if self.lags and strict and "features" not in kind.model_fields:
            raise InputError(f"--lags goes with trainers of features, and {name} has none.")
        if self.lags and "features" in kind.model_fields:
            return self._lagged(make, settings, holdout)
        return build_settings(make, **settings)

    def _lagged(
        self, make: "Callable[..., HoldoutTrainer]", settings: dict[str, Any], holdout: Any
    ) -> "HoldoutTrainer":
        """Return a trainer with earlier labels among its features."""
        from partwise.trainers import Lagged

        scored = {**holdout, "intervals": settings.pop("intervals", ())}
        inner = build_settings(make, **{k: v for k, v in settings.items() if k not in scored})
        given = given_options({name: getattr(self, name) for name in ("time", *_OF_LAGS)})
        lags, means = tuple(split_names(self.lags)), tuple(split_names(self.lag_means))
        return build_settings(Lagged, trainer=inner, lags=lags, means=means, **given, **scored)
