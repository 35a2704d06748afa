"""Which runs hold the exports of a training run."""

import pyarrow as pa
import pyarrow.compute as pc

from partwise.errors import InputError, PartwiseError, RunNotFoundError
from partwise.models.export_options import ModelFormat, format_of
from partwise.runs.contents import list_runs
from partwise.runs.kinds import KINDS
from partwise.runs.run import Run
from partwise.runs.trials import best_row


def check_has_models(run: Run, *, takes_exports: bool) -> None:
    """Refuse a run that has no models.

    With `takes_exports`, the models of a run of export_models are as good.
    """
    taken = {
        name: kind.flow
        for name, kind in KINDS.items()
        if kind.models or (takes_exports and name == "export")
    }
    if run.kind in taken:
        return
    flows = list(taken.values())
    raise InputError(
        f"The run {run.run_id!r} is of the kind {run.kind!r}; training_run_id names a run of "
        f"{', of '.join(flows[:-1])}, or of {flows[-1]}."
    )


def training_of(run: Run) -> Run:
    """Return the run that trained the models of a run: itself, or the one whose it has exported.

    RunNotFoundError where that is gone.
    """
    if run.kind != "export" or run.document.training_run_id is None:
        return run
    return Run.open(run.document.training_run_id, run.store)


def has_one_model(run: Run) -> bool:
    """Tell a run of one model, or of its export, from those with a model for each partition.

    RunNotFoundError where it has exports, and their training run is gone.
    """
    return KINDS[training_of(run).kind].models == "one"


def ledger_of_models(run: Run) -> pa.Table:
    """Return the rows of a run whose models others use: of a study that of the best trial."""
    return best_row(run.ledger) if run.kind == "tune" else run.ledger


def find_exports(run: Run, form: ModelFormat) -> Run:
    """Return the run with the models of another run in a format.

    A run of exports is returned itself. InputError where it is of another kind or format, or the
    training run was exported several times.
    """
    if run.kind == "export":
        if form not in exported_as(run):
            raise InputError(
                f"The run {run.run_id!r} exported to {', '.join(exported_as(run)) or 'nothing'}, "
                f"and format is {form!r}."
            )
        return run
    check_has_models(run, takes_exports=True)
    exports, unread = [], []
    for name in list_runs(run.store):
        try:
            other = Run.open(name, run.store)
            ours = other.kind == "export" and other.document.training_run_id == run.run_id
            if ours and form in exported_as(other):
                exports.append(other)
        except PartwiseError as error:
            # Somebody else's perhaps, or of a newer release: it keeps nobody from the others.
            unread.append(str(error))
    if not exports:
        also = f" One run or more cannot be read: {unread[0]}" if unread else ""
        raise RunNotFoundError(
            f"There is no export of the run {run.run_id!r} to {form}: call export_models("
            f"{run.run_id!r}, {form!r}), or pass the ID of a run of export_models.{also}"
        )
    if len(exports) > 1:
        names = ", ".join(repr(other.run_id) for other in exports)
        raise InputError(
            f"The run {run.run_id!r} was exported to {form} as {names}: pass the ID of one of them "
            "as training_run_id."
        )
    return exports[0]


def exported_as(run: Run) -> list[str]:
    """Return the formats that an export run has published."""
    names = pc.struct_field(pc.list_flatten(run.ledger["artifacts"]), "serde").unique()
    return sorted({format_of(name) for name in names.to_pylist() if name})
