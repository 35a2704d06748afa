"""The flow that makes models the champions of a catalog, by a rule."""

from partwise.catalogs.rules import Improvement, Rule
from partwise.errors import PartwiseError
from partwise.flows.orchestration.block_parameters import StoreParameter
from partwise.flows.orchestration.plain_flow import plain_flow
from partwise.flows.orchestration.run_ids import reference_of_flow_run
from partwise.flows.orchestration.saved_blocks import open_store
from partwise.flows.orchestration.summary_log import BEGINNING
from partwise.planning.promotion import (
    Promotion,
    Require,
    carry_out,
    prepare_promotion,
    promotion_lines,
)
from partwise.publishing.mlflow_view import check_mlflow, show_in_mlflow
from partwise.tasks.flow_run import is_direct
from partwise.tasks.steps import run_logger


@plain_flow("promote-models")
def promote_models(
    catalog: str,
    *,
    comparison: str = "",
    models: str = "",
    rule: Rule = Improvement(),  # noqa: B008 (it is frozen)
    require: Require = "",
    exports: str = "",
    mlflow: str = "",
    dry_run: bool = False,
    store: StoreParameter = "artifacts",
) -> Promotion:
    """Make models champions of a catalog by a rule: its next version, or nothing at all.

    Pinned and retired keys stay as they are. The same promotion again finds its version; of two at
    once one makes it, and the other hears who that was. In a flow run it emits the event
    partwise.catalog.promoted.

    Example:
        >>> done = promote_models(  # doctest: +SKIP
        ...     "sales", comparison="compare-3", rule=Improvement("rmse", by=0.02)
        ... )
        >>> done.catalog.version, done.decision.counts  # doctest: +SKIP
        (8, {'kept': 93, 'replaced': 7})

    Args:
        catalog: The catalog's name, for its newest version; NAME@VERSION is refused where there is
            a newer one. The first promotion makes it.
        comparison: The run of compare_models whose candidates become champions. The scheduled time
            can stand in it as in run_id.
        models: In place of a comparison, whose models become champions: the ID of a run, which may
            have the time in it as well, or catalog://NAME@VERSION.
        rule: What makes a model win: Improvement, which needs a comparison, Everything, NewKeys or
            TheseKeys. Retire, which takes neither, retires keys that the data lacks.
        require: "onnx" leaves out models without a proved export to ONNX.
        exports: The run of export_models with the exports of a run's models, where there are
            several.
        mlflow: The tracking URI of an MLflow server that the version is shown in as well. One that
            does not answer is a warning: the promotion stands. Needs the extra mlflow.
        dry_run: Say what would change and which clause refused what, and change nothing.
        store: The artifact store: a folder, a URL such as s3://bucket/folder, or the name of a
            StoreBlock that is saved, such as store-block/prod. Or a StoreBlock.

    Returns:
        What was decided, key by key in `decision.verdicts`, and `catalog`, the version that holds
        now; None in a dry run.

    Raises:
        InputError: The arguments do not go together, or the comparison was made by another metric.
        KeyClassError: The keys are of other columns or classes than the catalog's.
        RunNotFoundError: There is no such run.
        CatalogNotFoundError: There is no such version.
        CatalogConflictError: Somebody else has made the next version meanwhile.
        RunBusyError: A process works on a run whose models become champions.
        IntegrityError: Files of such a run are gone.
    """
    if mlflow:
        check_mlflow(mlflow)
    opened = open_store(store)
    comparison = reference_of_flow_run(comparison, "compare")
    promotion = prepare_promotion(
        catalog,
        opened,
        rule,
        comparison=comparison,
        models=reference_of_flow_run(models, "train"),
        require=require,
        exports=exports,
    )
    if not dry_run:
        promotion = carry_out(promotion, opened)
    run_logger().info("%s%s", BEGINNING, "\n".join(promotion_lines(promotion)))
    if promotion.is_new and promotion.catalog is not None and not is_direct():
        from partwise.flows.orchestration.announcement import announce_version

        payload = {
            "base": promotion.catalog.version - 1,
            "changed": promotion.decision.changed,
            "comparison": comparison,
            "rule": promotion.origin.rule,
        }
        announce_version(promotion.name, promotion.catalog.version, opened.url, payload)
    if mlflow and promotion.catalog is not None:
        try:
            show_in_mlflow(promotion.catalog, mlflow)
        except PartwiseError as error:
            run_logger().warning("%s", error)
    return promotion
