"""Plan: all that is decided of a run before a row of it is touched."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from partwise.choices import NullKeys, OnExisting
from partwise.engine.assignment import Execution, ShardAssignment
from partwise.engine.driver.named_modules import named_modules
from partwise.engine.options import ExecutionOptions
from partwise.engine.sample import SampleWork
from partwise.engine.trained_models import models_by_shard
from partwise.engine.works import Work
from partwise.environments.resolved_environment import ResolvedEnvironment
from partwise.errors import InputError, RunExistsError, RunNotFoundError
from partwise.runs.claim import Claim, Identity, Intent
from partwise.runs.documents import SAMPLE_SUFFIX, check_run_id
from partwise.runs.run import Run
from partwise.runs.stored_models import ModelSet
from partwise.shuffle.plan import ShardedRows
from partwise.shuffle.shard_count import check_n_shards, default_n_shards
from partwise.shuffle.shared_folder import SharedFolder
from partwise.shuffle.write import Division
from partwise.sources.descriptions import Source
from partwise.store.store import Store
from partwise.tables.ipc_streams import table_bytes


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run is about to do: its identity, its rows, its work, and how the work is executed."""

    identity: Identity
    source: Source
    work: Work
    function: Any
    """The user's function or trainer."""
    intent: Intent
    seed: int
    params: Any
    null_keys: NullKeys
    on_existing: OnExisting
    options: ExecutionOptions
    environment: ResolvedEnvironment | None = None
    """Packages that come before the workers' own; None: there are none."""
    reads: frozenset[str] | None = None
    """The columns that the work looks at, besides those that make the keys; None: all."""
    models: tuple[ModelSet, ...] = ()
    """The trained models that it uses, in the order in which they are asked."""
    compares_models: bool = False
    """Whether each of them is used on a partition, not the first that it has."""
    without_model: str | None = None
    """What answers for a partition that has none of them; None: nothing."""
    check_sharded: Callable[[ShardedRows], None] | None = None
    """Refuses rows that cannot be used, once they are sharded."""
    choose: Callable[[ShardedRows], ShardedRows] | None = None
    """Says which partitions are worked on; None: all."""

    def choose_n_shards(self, claim: Claim, slots: int) -> int:
        """Return the number of shards: the run's, its training run's, the caller's or a default.

        Raises:
            InputError: The caller asks for another number than the run has.
        """
        # Where the models of a shard lie together, they are read together.
        theirs = self.models[0].n_shards if len(self.models) == 1 else None
        fixed = claim.existing.document.n_shards if claim.existing else theirs
        wanted = self.options.n_shards
        if fixed is not None and wanted is not None and wanted != fixed:
            raise InputError(
                f"execution.n_shards is {wanted}, and the run {self.identity.run_id!r} needs "
                f"{fixed}, as it was begun with or as its training run has; leave n_shards out."
            )
        if fixed or wanted:
            return fixed or wanted or 1
        about = self.source.description()
        return default_n_shards(about.rows, about.size_bytes, slots)

    def divide(self, n_shards: int) -> Division:
        """Return how the rows are divided."""
        return Division(
            selection=self.source.selection,
            key_columns=self.identity.key_columns,
            n_shards=check_n_shards(n_shards),
            null_keys=self.null_keys,
        )

    def as_sample(self, store: Store) -> "Plan":
        """Return the plan of a dry run, where the options ask for one: a run of another name."""
        if self.options.sample is None:
            return self
        # A dry run that is resumed has its name already.
        run_id = check_run_id(f"{self.identity.run_id.removesuffix(SAMPLE_SUFFIX)}{SAMPLE_SUFFIX}")
        _refuse_real_run(run_id, store)
        return replace(
            self,
            identity=replace(self.identity, run_id=run_id),
            work=SampleWork(work=self.work),
            on_existing="overwrite",
        )

    def check_rows(self, sharded: ShardedRows) -> None:
        """See that the trainer, or the models, can work with the rows."""
        if hasattr(self.function, "check"):
            names = tuple(column.name for column in self.identity.key_columns)
            self.function.check(sharded.schema, sharded.empty_columns, names)
        if hasattr(self.function, "check_partitions"):
            self.function.check_partitions(sharded.partitions)
        if self.check_sharded is not None:
            self.check_sharded(sharded)

    def named_modules(self) -> tuple[str, ...]:
        """Return the modules that the work is sure to import."""
        serdes = {name for models in self.models for name in models.serdes}
        return named_modules(self.function, self.intent.code_parts, serdes)

    def assign(
        self,
        execution: Execution,
        sharded: ShardedRows,
        folder: SharedFolder,
        params: Mapping[int, str],
    ) -> list[ShardAssignment]:
        """Return what the workers are handed, a value for each shard."""
        models = {
            number: folder.write(f"models-{number:05d}.arrow", table_bytes(table))
            for number, table in models_by_shard(self.models, sharded).items()
        }
        return [
            ShardAssignment(
                execution=execution,
                shard=shard,
                where=folder.where,
                only=sharded.only,
                params=folder.hand_over(params[shard.number]) if shard.number in params else None,
                models=models.get(shard.number),
            )
            for shard in sharded.shards
        ]


def _refuse_real_run(run_id: str, store: Store) -> None:
    """See to it that a dry run takes the place of no other run."""
    try:
        document = Run.open(run_id, store).read_generation_document()
    except RunNotFoundError:
        return
    if document.arguments.get("execution", {}).get("sample") is None:
        raise RunExistsError(
            f"The dry run would be {run_id!r}, and there is a run of that name which was none: "
            "pass another run_id."
        )
