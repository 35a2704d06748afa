"""What a promotion comes to: which models become champions of a catalog, and the version of that.

It is no run: it makes a version, or nothing.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from partwise.catalogs.catalog import Catalog
from partwise.catalogs.commit import commit_version
from partwise.catalogs.contest import Contest
from partwise.catalogs.decision import NEW, Decision, decide, decide_retirement
from partwise.catalogs.documents import CATALOG_SCHEME, Origin, versions_of
from partwise.catalogs.rows import champions_of, key_columns_of
from partwise.catalogs.rules import Retire, Rule, TheseKeys
from partwise.errors import InputError, RunNotFoundError
from partwise.formatting import counted
from partwise.planning.comparison import run_of
from partwise.runs.documents import RUN_SCHEME, RunOrigin, sha256_of
from partwise.runs.exports import check_has_models, find_exports, training_of
from partwise.runs.run import Run
from partwise.store.store import Store
from partwise.store.versions import parse_reference
from partwise.tables.keys.partition_keys import check_key_classes

Require = Literal["", "onnx"]
_KEYS_WRITTEN = 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Promotion:
    """A promotion, decided and perhaps carried out."""

    name: str
    """Of the catalog."""
    base: Catalog | None
    """The version that it begins with; None: it makes the first."""
    decision: Decision
    origin: Origin
    catalog: Catalog | None = None
    """The version that the catalog then has: a new one, or the base where nothing changes. None:
    it was not carried out."""

    def __repr__(self) -> str:
        return f"Promotion({self.title!r}, {self.decision!r})"

    @property
    def is_new(self) -> bool:
        """Whether a version was made."""
        before = 0 if self.base is None else self.base.version
        return self.catalog is not None and self.catalog.version != before

    @property
    def title(self) -> str:
        """What came of it, or would, in a line."""
        exported, new = self.decision.exported, self.decision.counts.get(NEW, 0)
        others = self.decision.changed - exported - new
        what = "retired" if self.origin.action == "retire" else "with another champion"
        keys = f"{counted(others, 'key')} {what}" if others or not new else ""
        if new:
            keys += f"{', ' * bool(keys)}{counted(new, 'key')} with a champion where none was"
        if exported:
            keys += f", {counted(exported, 'champion')} with an export that it had not"
        if self.is_new and self.catalog is not None:
            return f"{self.catalog.reference}: {keys}"
        if self.catalog is not None:
            return f"{self.catalog.reference} stays: nothing changes"
        if self.base is not None and not self.decision.changed:
            return f"{self.base.reference} would stay: nothing would change"
        return f"The next version of the catalog {self.name} would have {keys}"


def prepare_promotion(
    catalog: str,
    store: Store,
    rule: Rule,
    *,
    comparison: str = "",
    models: str = "",
    require: Require = "",
    exports: str = "",
) -> Promotion:
    """Decide what becomes a champion; nothing is written.

    Args:
        catalog: Its name, with which the newest version is meant, or NAME@VERSION.
        store: Where it is, or will be.
        rule: What makes a model win.
        comparison: A run of compare_models, whose candidates are promoted.
        models: In place of it, whose models are: a run, or a version of another catalog.
        require: "onnx" leaves out models without a proved export.
        exports: The run with the exports of a run's models. Empty: looked for where they are
            required.

    Raises:
        InputError: The arguments do not go together.
        KeyClassError: The keys are of other columns or classes than the catalog's.
        RunNotFoundError, CatalogNotFoundError: What is named is not there.
    """
    if isinstance(rule, Retire):
        if comparison or models or require or exports:
            raise InputError(
                "Retire(...) goes by the versions of the catalog alone: leave out comparison=, "
                "models=, require= and exports=."
            )
        return _retirement(rule, Catalog.open(catalog, store))
    if bool(comparison) == bool(models):
        raise InputError(
            "A promotion takes models from a comparison, or those of one run: give one of "
            "comparison='RUN' and models='RUN'."
        )
    name, version = parse_reference(catalog, "catalog")
    base = None
    if version is not None or versions_of(store, name).there():
        base = Catalog.open(catalog, store)
    contest, origin = None, None
    references = [models]
    if comparison:
        run = Run.open(comparison, store)
        contest, origin = Contest.of(run), _origin_of(run)
        references = list(contest.references)
    if exports:
        _check_exports(exports, references, store)
    newcomers = [_newcomer(each, store, require, exports) for each in references]
    columns = key_columns_of(newcomers[0])
    if base is not None:
        check_key_classes(base.key_columns, columns, f"the catalog {name!r}")
    for table, reference in zip(newcomers, references, strict=True):
        if key_columns_of(table) != columns or (contest and not _has_keys(contest, table)):
            raise InputError(
                f"The models of {reference} have other key columns than those of the others: a "
                "catalog has one model for each of its keys."
            )
    decision = decide(
        rule,
        newcomers,
        key_columns=columns,
        base=None if base is None else base.table,
        contest=contest,
        version=1 if base is None else base.version + 1,
        needs_export=require == "onnx",
    )
    written = _written(rule) | {
        key: value for key, value in {"models": models, "require": require}.items() if value
    }
    made = Origin(action="promote", rule=written, comparison=origin, counts=decision.counts)
    return Promotion(name=name, base=base, decision=decision, origin=made)


def _retirement(rule: Retire, base: Catalog) -> Promotion:
    decision = decide_retirement(rule, base.table, base.version + 1)
    origin = Origin(action="retire", rule=_written(rule), counts=decision.counts)
    return Promotion(name=base.name, base=base, decision=decision, origin=origin)


def carry_out(promotion: Promotion, store: Store) -> Promotion:
    """Make the version of a promotion.

    Raises:
        CatalogConflictError: Somebody else has made that version; the message says who.
        RunBusyError: A process works on a run whose models become champions.
        RunNotFoundError, IntegrityError: Such a run, or files of it, are gone.
    """
    if promotion.base is None and not promotion.decision.champions.num_rows:
        return promotion
    done = commit_version(
        store,
        promotion.name,
        base=promotion.base,
        champions=promotion.decision.champions,
        origin=promotion.origin,
    )
    return replace(promotion, catalog=done)


def _origin_of(run: Run) -> RunOrigin:
    summary = run.shown
    if summary is None or summary.ledger_sha256 is None:
        raise InputError(
            f"The comparison {run.run_id!r} ({run.status.value}) is not complete: go on with it "
            f"first, as partwise runs resume {run.run_id} does."
        )
    return RunOrigin(
        run_id=run.run_id, generation=summary.generation, ledger_sha256=summary.ledger_sha256
    )


def _newcomer(reference: str, store: Store, require: Require, exports: str) -> pa.Table:
    """Return the models that a reference names as rows of a catalog."""
    name = reference.partition("#")[0]
    if name.startswith(CATALOG_SCHEME):
        table = Catalog.open(name, store).table
        return table.filter(pc.invert(table["retired"]))
    run = run_of(name, store)
    if run.kind == "compare":
        raise InputError(
            f"The run {run.run_id!r} compared models and has none: give comparison={run.run_id!r} "
            "in place of models."
        )
    check_has_models(run, takes_exports=True)
    if (training := training_of(run)) is not run:
        table = champions_of(training, run)
        # Of other models nothing was exported, or compared.
        return table.filter(pc.is_valid(table["onnx"]))
    found: Run | None = None
    if exports:
        named = Run.open(exports, store)
        found = named if named.document.training_run_id == run.run_id else None
    elif require:
        with suppress(RunNotFoundError):
            found = find_exports(run, "onnx")
    return champions_of(run, found)


def _check_exports(exports: str, references: Sequence[str], store: Store) -> None:
    """Refuse exports of none of the models that are promoted: they would be passed over."""
    trained = Run.open(exports, store).document.training_run_id
    runs = {each.removeprefix(RUN_SCHEME).partition("@")[0] for each in references}
    if runs.isdisjoint({trained, exports}):
        what = "no exports" if trained is None else f"exports of {trained!r}"
        names = " and ".join(map(repr, references))
        raise InputError(
            f"exports={exports!r} has {what}, and those of {names} are promoted: "
            "name the run of export_models that exported these."
        )


def _has_keys(contest: Contest, table: pa.Table) -> bool:
    *names, _ = contest.keys.column_names
    theirs: list[str] = table.column_names
    return bool(names == theirs[: len(names)])


def _written(rule: Rule) -> dict[str, Any]:
    """Return a rule as a version has it; of very many keys some, and the checksum of all."""
    written: dict[str, Any] = rule.model_dump(mode="json")
    if isinstance(rule, TheseKeys) and len(rule.keys) > _KEYS_WRITTEN:
        written["keys"] = written["keys"][:_KEYS_WRITTEN]
        written |= {"count": len(rule.keys), "sha256": sha256_of(repr(rule.keys).encode())}
    return written


def promotion_lines(promotion: Promotion) -> list[str]:
    """Return what becomes of the keys, and which clause refused how many of them, for people."""
    decision = promotion.decision
    lines = [f"{verdict}: {count:,}" for verdict, count in decision.counts.items()]
    return [promotion.title, *lines] + [
        f"  {verdict}, since {reason}: {count:,}"
        for verdict, reason, count in decision.reasons
        if reason
    ]
