"""`partwise promote`: models become champions of a catalog."""

from typing import Annotated, Any

from cyclopts import Group, Parameter

from partwise.errors import InputError
from partwise.flows.cli.options import Json, Names, StoreUrl
from partwise.flows.cli.parsing import build_settings, given_options, in_words_of_the_shell

RULE = Group("Rule", sort_key=0)

Clause = Annotated[float | None, Parameter(group=RULE)]


def promote(
    catalog: Annotated[str, Parameter(name="CATALOG")],
    /,
    *,
    comparison: str = "",
    models: str = "",
    metric: Annotated[str, Parameter(group=RULE)] = "",
    by: Clause = None,
    by_absolute: Clause = None,
    min_rows: Annotated[int | None, Parameter(group=RULE)] = None,
    confidence: Clause = None,
    new: Annotated[str, Parameter(group=RULE)] = "",
    everything: Annotated[bool, Parameter(group=RULE, negative="")] = False,
    new_keys: Annotated[bool, Parameter(group=RULE, negative="")] = False,
    key: Annotated[Names, Parameter(group=RULE)] = (),
    retire_unseen: Annotated[int | None, Parameter(group=RULE)] = None,
    require: str = "",
    exports: str = "",
    mlflow: str = "",
    dry_run: bool = False,
    store: StoreUrl = "artifacts",
    as_json: Json = False,
) -> int:
    """Make models champions of a catalog by a rule: its next version, or nothing at all.

    Args:
        catalog: Its name, for the newest version; NAME@VERSION is refused where there is a newer
            one. The first promotion makes it.
        comparison: The run of `partwise compare` whose candidates become champions.
        models: In place of a comparison, whose models become champions: a run, or
            catalog://NAME@VERSION.
        metric: The metric that the comparison was made by. Default: whichever it is.
        by: By how much a model has to be better, as a share of the champion's value on these rows.
            Default: 0.02.
        by_absolute: By how much, in units of the metric.
        min_rows: On how many rows, at least. Default: 50.
        confidence: How sure it has to be that it was not luck. Default: 0.999.
        new: Which models keys without a champion get: compared, those that have a value on enough
            rows, or always.
        everything: Take over all models: those of the run, or of each key the best.
        new_keys: Take over the models of keys without a champion.
        key: Take over the model of this key; may be repeated.
        retire_unseen: In place of a comparison or models: retire keys of which so many versions
            of the catalog had no rows.
        require: "onnx" leaves out models without a proved export to ONNX.
        exports: The run with the exports of the models, where there are several.
        mlflow: The tracking URI of an MLflow server that the version is shown in as well, such as
            http://mlflow:5000; that it does not answer is a warning.
        dry_run: Say what would change and which clause refused what, and change nothing.
        store: A folder, or a URL such as s3://bucket/folder.
        as_json: Print a JSON object.
    """
    from partwise.catalogs.rules import Improvement
    from partwise.flows.cli import output
    from partwise.flows.cli.news import plain_news, server_of_runs
    from partwise.planning.promotion import promotion_lines

    clauses = given_options(
        {
            "metric": metric,
            "by": by,
            "by_absolute": by_absolute,
            "min_rows": min_rows,
            "confidence": confidence,
            "new": new,
        }
    )
    rule = _rule(
        clauses, everything=everything, new_keys=new_keys, keys=key, retire_unseen=retire_unseen
    )
    if models and not comparison and isinstance(rule, Improvement):
        raise InputError(
            "--models takes over what one run has, and only a comparison tells what is better: say "
            "--everything, --new-keys or --key, or give --comparison in place of --models."
        )
    if require not in ("", "onnx"):
        raise InputError(f"--require {require!r}: what can be required is onnx.")
    with plain_news(), server_of_runs():
        # Here, since it imports much.
        from partwise.flows import promote_models

        promotion = promote_models(
            catalog,
            comparison=comparison,
            models=models,
            rule=rule,
            require="onnx" if require else "",
            exports=exports,
            mlflow=mlflow,
            dry_run=dry_run,
            store=store,
        )
    if as_json:
        made = promotion.catalog
        return output.print_json(
            {
                "catalog": promotion.name,
                "version": None if made is None else made.version,
                "is_new": promotion.is_new,
                "changed": promotion.decision.changed,
                "verdicts": promotion.decision.counts,
                "refused": [
                    {"verdict": verdict, "reason": reason, "keys": count}
                    for verdict, reason, count in promotion.decision.reasons
                ],
            }
        )
    for line in promotion_lines(promotion):
        output.print_line(in_words_of_the_shell(line))
    return 0


def _rule(
    clauses: dict[str, Any],
    *,
    everything: bool,
    new_keys: bool,
    keys: Names,
    retire_unseen: int | None,
) -> Any:
    from partwise.catalogs.rules import Everything, Improvement, NewKeys, Retire, TheseKeys

    if bool(clauses) + everything + new_keys + bool(keys) + (retire_unseen is not None) > 1:
        raise InputError(
            "One rule decides: --everything, --new-keys, --key, --retire-unseen, or what an "
            "improvement has to be."
        )
    if retire_unseen is not None:
        return build_settings(Retire, unseen_for_versions=retire_unseen)
    if everything:
        return Everything()
    if new_keys:
        return NewKeys()
    if keys:
        return TheseKeys(keys)
    return build_settings(Improvement, **clauses)
