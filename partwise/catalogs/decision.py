"""Which models become champions by a rule: whole columns over all keys, and nothing is written."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.catalogs.contest import Contest
from partwise.catalogs.documents import CATALOG_SCHEME
from partwise.catalogs.rows import COLUMNS, export_identities, in_order, with_column
from partwise.catalogs.rows import retired as with_retired
from partwise.catalogs.rules import Improvement, NewKeys, Retire, Rule, TheseKeys, rule_text
from partwise.errors import InputError
from partwise.formatting import counted, did_you_mean
from partwise.runs.key_texts import named_partition
from partwise.runs.ledger import key_names
from partwise.tables.keys.one_table import one_table
from partwise.tables.keys.partition_keys import KeyColumn

REPLACED, NEW, KEPT, PINNED, RETIRED, LEFT_OUT, UNSEEN = (
    *("replaced", "new", "kept", "pinned", "retired", "left out", "unseen"),
)
"""What becomes of a key; left out: it has no champion, and gets none."""
_FIGURES = ("rows", "before", "after", "margin", "confidence")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Decision:
    """What a promotion would change."""

    champions: pa.Table
    """All rows of the version that it would make."""
    verdicts: pa.Table
    """A row for each key, in the order of partition_id: the key columns, partition_id, verdict,
    candidate (which wins, or was the closest), reason, rows, before and after (of the metric),
    margin, confidence."""
    changed: int
    """How many keys would get another champion, or an export for the one that they have."""
    exported: int = 0
    """How many of them keep their champion, and would get an export for it."""

    def __repr__(self) -> str:
        counts = ", ".join(f"{count:,} {verdict}" for verdict, count in self.counts.items())
        return f"Decision({counted(self.verdicts.num_rows, 'key')}: {counts})"

    @property
    def counts(self) -> dict[str, int]:
        """How many keys there are of each verdict, the most frequent first."""
        return dict(Counter(self.verdicts["verdict"].to_pylist()).most_common())

    @property
    def reasons(self) -> list[tuple[str, str, int]]:
        """Verdicts with their reasons, and for how many keys each holds, the most frequent first.

        Those of keys that change are left out.
        """
        columns = (self.verdicts[name].to_pylist() for name in ("verdict", "reason"))
        found = Counter(zip(*columns, strict=True))
        return [
            (verdict, reason, count)
            for (verdict, reason), count in found.most_common()
            if verdict not in (REPLACED, NEW)
        ]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Field:
    """Keys and their candidates as arrays: n keys, m candidates."""

    newcomers: np.ndarray
    """The row of each candidate's model among its champions, shape (n, m); -1: it has none."""
    base: np.ndarray
    """The row of each key in the base version, shape (n,); -1: it has none."""
    is_champion: np.ndarray
    """Whether a candidate's model is the champion, shape (n, m)."""
    has_export: np.ndarray
    """Whether it has a proved export to ONNX, shape (n, m)."""
    is_exported: np.ndarray
    """Whether that is the very export which the champion has, shape (n, m)."""
    champion_has_export: np.ndarray
    """Whether the base version has one of the key, shape (n,)."""

    @property
    def places(self) -> np.ndarray:
        """Which candidate is the champion, shape (n,); -1: none of them."""
        found: np.ndarray = np.where(self.is_champion.any(axis=1), self.is_champion.argmax(1), -1)
        return found


def decide(
    rule: Rule,
    newcomers: Sequence[pa.Table],
    *,
    key_columns: Sequence[KeyColumn],
    base: pa.Table | None = None,
    contest: Contest | None = None,
    version: int = 1,
    needs_export: bool = False,
) -> Decision:
    """Decide which models become champions.

    `newcomers` are the models of each candidate, as rows of a catalog's table: of a contest in its
    order, else of one run. `base` are the rows of the version to start from, and `version` is the
    number of the one that would be made. With `needs_export`, models without a proved export to
    ONNX are left out.

    Raises:
        InputError: The rule needs another comparison, or names keys that are not there.
    """
    if isinstance(rule, Improvement):
        _check_compared(rule, contest)
    keys = newcomers[0] if contest is None else contest.keys
    ids = keys["partition_id"].combine_chunks()
    field = _field(ids, newcomers, base)
    losses = np.zeros(field.newcomers.shape) if contest is None else contest.losses
    clauses = _clauses(rule, field, contest, losses, needs_export=needs_export)
    why = np.select([mask for mask, _ in clauses], range(1, len(clauses) + 1), 0)
    passes = (why == 0).any(axis=1)
    # The best of those that no clause refuses, of equals the first; one without a value is last.
    fit = np.where(why == 0, np.minimum(losses, np.finfo(float).max), np.inf)
    # Else the one that came furthest, whose clause is the reason.
    closest = np.where(field.is_champion, -1, why).argmax(axis=1)
    chosen = np.where(passes, fit.argmin(axis=1), closest)
    at = np.arange(len(ids)), chosen
    pinned, retired = (_flag(base, field.base, name) for name in ("pinned", "retired"))
    is_in = _named(rule, ids, key_columns, field)
    wins = passes & is_in & ~pinned & (~retired | isinstance(rule, TheseKeys))
    has_champion = (field.base >= 0) & ~retired
    reasons = np.array(["", *(text for _, text in clauses)], object)[why[at]]
    only_champion = (field.newcomers[at] < 0) & field.is_champion.any(axis=1)
    reasons[only_champion] = "no other candidate has a model"
    has = "it has a champion" if isinstance(rule, NewKeys) else "the rule does not name it"
    reasons[passes & ~is_in] = has
    reasons[passes & is_in & (pinned | retired)] = "but for that, it would be replaced"
    verdicts = np.select(
        [wins & has_champion, wins, pinned, retired, has_champion],
        [REPLACED, NEW, PINNED, RETIRED, KEPT],
        LEFT_OUT,
    ).astype(object)
    sources = _exporting(field, contest, is_in & has_champion & ~wins)
    reasons[sources >= 0] = [_with_export(each) for each in reasons[sources >= 0]]
    figures = _figures(contest, field, chosen)
    decided = {"verdict": verdicts, "reason": np.where(wins, rule_text(rule), reasons), **figures}
    fresh = _fresh(newcomers, field, chosen, wins, contest, decided)
    stay = _with_exports(base, newcomers, field, sources)
    return Decision(
        # Where nothing was compared, nobody knows which keys the data has.
        champions=_with_fresh(stay, fresh, None if contest is None else ids, version),
        verdicts=_verdicts(ids, chosen, decided, contest, newcomers, base),
        changed=int((wins | (sources >= 0)).sum()),
        exported=int((sources >= 0).sum()),
    )


def decide_retirement(rule: Retire, base: pa.Table, version: int) -> Decision:
    """Decide which keys of a version have no champion in the next one, whose number is given."""
    since = pc.subtract(pa.scalar(version, pa.int32()), base["unseen_since"])
    unseen = pc.fill_null(since, 0).to_numpy()
    pinned, retired = (_bools(base[name].combine_chunks()) for name in ("pinned", "retired"))
    is_due = unseen >= rule.unseen_for_versions
    wins = is_due & ~pinned & ~retired
    known = [wins | retired, pinned, unseen > 0]
    verdicts: Any = np.select(known, [RETIRED, PINNED, UNSEEN], KEPT)
    reasons = np.select(
        [wins, retired, is_due],
        [rule_text(rule), "it was before", "but for that, it would be retired"],
        "",
    )
    ids = base["partition_id"].combine_chunks()
    nowhere = np.zeros(len(ids), int)
    decided: dict[str, Any] = dict.fromkeys(_FIGURES) | {"verdict": verdicts, "reason": reasons}
    return Decision(
        champions=with_retired(base, ids.filter(pa.array(wins))),
        verdicts=_verdicts(ids, nowhere, decided, None, [base], None),
        changed=int(wins.sum()),
    )


def _check_compared(rule: Improvement, contest: Contest | None) -> None:
    if contest is None:
        raise InputError(
            "Improvement(...) goes by a comparison: name a run of compare_models as comparison, "
            "or give the rule Everything(), NewKeys() or TheseKeys(...)."
        )
    if rule.metric and rule.metric != contest.metric:
        raise InputError(
            f"The comparison {contest.run_id!r} was made by {contest.metric}, and the rule goes by "
            f"{rule.metric}: compare with metric={rule.metric!r}."
        )


def _field(ids: pa.Array, newcomers: Sequence[pa.Table], base: pa.Table | None) -> _Field:
    rows = np.stack([_places(ids, table) for table in newcomers], axis=1)
    champions = np.full(len(ids), -1) if base is None else _places(ids, base)
    same, exported, is_it = (np.zeros(rows.shape, bool) for _ in range(3))
    for column, table in enumerate(newcomers):
        both = np.flatnonzero((rows[:, column] >= 0) & (champions >= 0))
        if base is not None and len(both):
            theirs = table.take(pa.array(rows[both, column]))
            ours = base.take(pa.array(champions[both]))
            equal = map(pc.equal, _marks(theirs), _marks(ours))
            same[both, column] = np.logical_and.reduce([_bools(each) for each in equal])
            is_it[both, column] = _bools(pc.equal(*map(export_identities, (theirs, ours))))
        exported[:, column] = _has_export(table)[rows[:, column]]
    return _Field(
        newcomers=rows,
        base=champions,
        is_champion=same,
        has_export=exported,
        is_exported=exported & is_it,
        champion_has_export=_has_export(base)[champions],
    )


def _has_export(table: pa.Table | None) -> np.ndarray:
    """Return which rows have an export; the last one is for rows that are not there."""
    has = [] if table is None else pc.is_valid(table["onnx"]).to_numpy()
    return np.append(has, False).astype(bool)


def _marks(rows: pa.Table) -> list[pa.ChunkedArray]:
    """Return what two rows of one and the same model have in common."""
    model = pc.struct_field(rows["native"], ["model", "sha256"])
    return [rows["run_id"], rows["owner"], model]


def _places(ids: pa.Array, table: pa.Table) -> np.ndarray:
    found = pc.index_in(ids, value_set=table["partition_id"].combine_chunks())
    places: np.ndarray = found.fill_null(-1).to_numpy(zero_copy_only=False)
    return places


def _bools(values: Any) -> np.ndarray:
    found: np.ndarray = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
    return found


def _flag(base: pa.Table | None, rows: np.ndarray, name: str) -> np.ndarray:
    if base is None:
        return np.zeros(len(rows), bool)
    found: np.ndarray = np.append(_bools(base[name].combine_chunks()), False)[rows]
    return found


def _clauses(
    rule: Rule,
    field: _Field,
    contest: Contest | None,
    losses: np.ndarray,
    *,
    needs_export: bool,
) -> list[tuple[np.ndarray, str]]:
    """Return what refuses candidates, in the order in which it is looked at."""
    shape = field.newcomers.shape
    clauses = [(field.newcomers < 0, "it has no model")]
    if needs_export:
        clauses.append((~field.has_export, "it has no proved export to ONNX"))
    if contest is None:
        return [*clauses, (field.is_champion, "it is the champion")]
    raised, valueless = (contest.failed, "it raised"), (~np.isfinite(losses), "it has no value")
    if not isinstance(rule, Improvement):
        best = losses.min(axis=1, initial=np.inf)
        leads = np.where(field.is_champion, losses, np.inf).min(axis=1) <= best
        is_best = np.broadcast_to(leads[:, None], shape), "the champion is the best"
        return [*clauses, raised, valueless, is_best]
    measured = [
        raised,
        (contest.lost > 0, "it gave no finite number for some rows"),
        valueless,
        (contest.seen, "it was trained on these rows"),
        (
            np.broadcast_to((contest.rows < rule.min_rows)[:, None], shape),
            f"fewer rows count than min_rows={rule.min_rows}",
        ),
    ]
    has_champion = (field.base >= 0)[:, None]
    if rule.new == "always":
        measured = [(mask & has_champion, text) for mask, text in measured]
    return [*clauses, *measured, *_against(rule, field, contest, losses)]


def _against(
    rule: Improvement, field: _Field, contest: Contest, losses: np.ndarray
) -> list[tuple[np.ndarray, str]]:
    """Return what refuses candidates beside the champion."""
    shape = losses.shape
    places, keys = field.places, np.arange(len(losses))
    is_compared = places >= 0
    champion = np.where(is_compared, losses[keys, places], np.nan)[:, None]
    # A champion without a value loses to any that has one.
    has_value = np.broadcast_to(np.isfinite(champion), shape)
    gains = np.where(has_value, champion - np.where(np.isfinite(losses), losses, 0), np.inf)
    sure = np.nan_to_num(contest.confidences[keys[:, None], np.arange(shape[1]), places[:, None]])
    seen = is_compared & contest.seen[keys, places]
    missing = (field.base >= 0) & ~is_compared
    metric = contest.metric
    clauses = [
        (np.broadcast_to(missing[:, None], shape), "the champion was not compared"),
        (np.broadcast_to(seen[:, None], shape), "the champion was trained on these rows"),
        (has_value & (gains == 0), "it is a tie"),
        (has_value & (gains < 0), "it is worse"),
    ]
    if rule.by:
        is_zero = has_value & (champion == 0) & (not contest.maximized)
        few = has_value & (gains < rule.by * np.abs(np.nan_to_num(champion)))
        clauses += [
            (is_zero, f"{metric} of the champion is 0"),
            (few, f"it is better by less than {100 * rule.by:g} %"),
        ]
    if rule.by_absolute:
        few = has_value & (gains < rule.by_absolute)
        clauses.append((few, f"it is better by less than {rule.by_absolute:g}"))
    unsure = has_value & (sure < rule.confidence)
    return [*clauses, (unsure, f"it may be luck: the confidence is below {rule.confidence:g}")]


def _named(rule: Rule, ids: pa.Array, columns: Sequence[KeyColumn], field: _Field) -> np.ndarray:
    """Return which keys a rule is about."""
    if isinstance(rule, NewKeys):
        return field.base < 0
    if not isinstance(rule, TheseKeys):
        return np.ones(len(ids), bool)
    wanted = [named_partition(key, tuple(columns)) for key in rule.keys]
    there = set(ids.to_pylist())
    for key, name in zip(rule.keys, wanted, strict=True):
        if name not in there:
            raise InputError(
                f"The rule names the key {key!r}, of which there is no model."
                f"{did_you_mean(name, there)}"
            )
    return _bools(pc.is_in(ids, value_set=pa.array(sorted(set(wanted)))))


def _exporting(field: _Field, contest: Contest | None, may: np.ndarray) -> np.ndarray:
    """Return of which candidate each champion gets the export, shape (n,); -1: of none.

    Only keys that `may` get one do, and only where it is one that the champion has not.
    """
    fits = field.is_champion & field.has_export
    # A version of a catalog has what its champions had then: it adds, and puts nothing back.
    is_version = np.zeros(fits.shape[1], bool)
    if contest is not None:
        is_version[:] = [each.startswith(CATALOG_SCHEME) for each in contest.references]
    stays = field.is_exported & field.is_champion & ~is_version
    others = fits & ~(field.champion_has_export[:, None] & is_version)
    gets = may & others.any(axis=1) & ~stays.any(axis=1)
    found: np.ndarray = np.where(gets, others.argmax(axis=1), -1)
    return found


def _with_export(reason: str) -> str:
    whose = "" if reason == "it is the champion" else "the champion "
    return f"{reason}, and {whose}has an export now"


def _with_exports(
    base: pa.Table | None, newcomers: Sequence[pa.Table], field: _Field, sources: np.ndarray
) -> pa.Table | None:
    """Return the base version with the exports that its champions get; all else stays."""
    keys = np.flatnonzero(sources >= 0)
    if base is None or not len(keys):
        return base
    parts, at = [base["onnx"]], np.arange(base.num_rows)
    for column, table in enumerate(newcomers):
        mine = keys[sources[keys] == column]
        at[field.base[mine]] = sum(map(len, parts)) + np.arange(len(mine))
        parts.append(table["onnx"].take(pa.array(field.newcomers[mine, column])))
    chunks = [chunk for part in parts for chunk in part.chunks]
    return with_column(base, "onnx", pa.concat_arrays(chunks).take(pa.array(at)))


def _figures(
    contest: Contest | None, field: _Field, chosen: np.ndarray
) -> dict[str, np.ndarray | None]:
    """Return for each key the figures of the candidate and the champion."""
    if contest is None:
        return dict.fromkeys(_FIGURES)
    keys, places = np.arange(len(chosen)), field.places
    has = places >= 0
    before = np.where(has, contest.values[keys, places], np.nan)
    after = contest.values[keys, chosen]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        gain = after - before if contest.maximized else before - after
        margin = gain / np.abs(before)
    sure = np.where(has, contest.confidences[keys, chosen, places], np.nan)
    margin = np.where(np.isfinite(margin), margin, np.nan)
    return dict(zip(_FIGURES, (contest.rows, before, after, margin, sure), strict=True))


def _fresh(
    newcomers: Sequence[pa.Table],
    field: _Field,
    chosen: np.ndarray,
    wins: np.ndarray,
    contest: Contest | None,
    decided: Mapping[str, Any],
) -> pa.Table:
    """Return the rows of the champions that are new."""
    tables, order = [newcomers[0].slice(0, 0)], []
    for place, table in enumerate(newcomers):
        keys = np.flatnonzero(wins & (chosen == place))
        tables.append(table.take(pa.array(field.newcomers[keys, place])))
        order.append(keys)
    at = np.concatenate(order)
    rows = one_table(tables)
    count = len(at)
    values: dict[str, Any] = {
        # Null: the version that is made fills it in.
        "promoted_at": pa.nulls(count),
        "since_version": pa.nulls(count),
        "comparison": pa.repeat("", count),
        "margin": pa.nulls(count),
        "reason": pa.array(decided["reason"][at], pa.string()),
        "pinned": pa.repeat(False, count),
        "retired": pa.repeat(False, count),
        "unseen_since": pa.nulls(count),
    }
    if contest is not None:
        margin, after = decided["margin"][at], decided["after"][at]
        values |= {
            "rows": pa.array(decided["rows"][at]),
            "metrics": _one_metric(contest.metric, after),
            "comparison": pa.repeat(f"{contest.run_id}@{contest.generation}", count),
            "margin": pa.array(margin, mask=np.isnan(margin)),
        }
    for name, column in values.items():
        rows = with_column(rows, name, column.cast(COLUMNS.field(name).type))
    return rows


def _one_metric(name: str, values: np.ndarray) -> pa.Array:
    """Return a map of one metric for each row; an empty one where it has no value."""
    has = np.isfinite(values)
    offsets = pa.array(np.concatenate([[0], np.cumsum(has)]).astype(np.int32))
    return pa.MapArray.from_arrays(
        offsets, pa.repeat(name, int(has.sum())), pa.array(values[has], pa.float64())
    )


def _with_fresh(
    base: pa.Table | None, fresh: pa.Table, seen: pa.Array | None, version: int
) -> pa.Table:
    """Return the base version with new champions in their places.

    `seen` are the keys that the data has, by which others are marked; None: that is not known.
    """
    if base is None:
        return in_order(fresh)
    kept = base.filter(pc.invert(pc.is_in(base["partition_id"], value_set=fresh["partition_id"])))
    if seen is not None:
        kind = COLUMNS.field("unseen_since").type
        since = pc.if_else(
            pc.is_in(kept["partition_id"], value_set=seen),
            pa.scalar(None, kind),
            pc.coalesce(kept["unseen_since"], pa.scalar(version, kind)),
        )
        kept = with_column(kept, "unseen_since", since)
    both = [kept, fresh.select(kept.column_names)]
    return in_order(one_table(both))


def _verdicts(
    ids: pa.Array,
    chosen: np.ndarray,
    decided: Mapping[str, Any],
    contest: Contest | None,
    newcomers: Sequence[pa.Table],
    base: pa.Table | None,
) -> pa.Table:
    names = key_names(newcomers[0].column_names)
    keys = (newcomers[0] if contest is None else contest.keys).select([*names, "partition_id"])
    candidates = [""] if contest is None else list(contest.candidates)
    columns: dict[str, Any] = {name: keys[name] for name in keys.column_names}
    columns["verdict"] = pa.array(decided["verdict"], pa.string())
    columns["candidate"] = pa.array(candidates, pa.string()).take(pa.array(chosen))
    columns["reason"] = pa.array(decided["reason"], pa.string())
    for name in _FIGURES:
        kind = pa.int64() if name == "rows" else pa.float64()
        # Rows are whole numbers, of which none is NaN.
        found = decided[name]
        columns[name] = (
            pa.nulls(len(ids), kind)
            if found is None
            else pa.array(found, kind, mask=np.isnan(found))
        )
    table = pa.table(columns)
    if base is not None and contest is not None:
        unseen = base.filter(pc.invert(pc.is_in(base["partition_id"], value_set=ids)))
        rest = unseen.select(keys.column_names)
        rest = rest.append_column("verdict", pa.repeat(UNSEEN, rest.num_rows))
        rest = rest.append_column("reason", pa.repeat("the data has no rows of it", rest.num_rows))
        table = one_table([table, rest])
    return table.sort_by("partition_id")
