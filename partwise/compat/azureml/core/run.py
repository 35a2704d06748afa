"""A run: its handle where it was submitted, and what a script reports by it."""

import atexit
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from numbers import Number
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from partwise.compat.azureml.pipeline.entry_script import ROW
from partwise.errors import ArtifactNotFoundError, InputError
from partwise.outcomes import RunStatus
from partwise.ranks.current_context import get_context
from partwise.ranks.script_context import script_context
from partwise.runs.run import Run as PartwiseRun

if TYPE_CHECKING:
    from partwise.compat.azureml.core.experiment import Experiment
    from partwise.flows.orchestration.started_run import StartedRun

STATUSES: Mapping[RunStatus, str] = {
    RunStatus.IN_PROGRESS: "Running",
    RunStatus.SUCCESS: "Completed",
    RunStatus.SKIPPED: "Completed",
    RunStatus.PARTIAL_FAILURE: "Completed",
    RunStatus.FAILURE: "Failed",
    RunStatus.CANCELLED: "Canceled",
}

WRITTEN_EACH_S = 1.0


class ScriptRun:
    """What `Run.get_context()` is in a script: each value that it logs is a metric of its rank.

    Of a name that is logged several times the last number is the metric, and all values are kept,
    as a list; of rows, one of each column. Such lists are written once a second, and as the script
    ends.
    """

    # Of the whole process: a script may ask for its context at each value.
    _logged: ClassVar[dict[str, list[Any]]] = {}
    """All values, by name."""
    _unwritten: ClassVar[dict[str, Callable[[], Any]]] = {}
    """What makes what is to be written of names with several. All go to one file each time."""
    _written_at: ClassVar[float] = -WRITTEN_EACH_S

    def __init__(self) -> None:
        self._is_of_run = script_context() is not None

    def log(self, name: str, value: Any, description: str = "") -> None:
        """Log a number or a text; outside a run it is printed."""
        del description
        values = self._with(name, [value])
        self._report(name, value, (lambda: values) if len(values) > 1 else None)

    def log_list(self, name: str, value: Sequence[Any], description: str = "") -> None:
        """Log the values of a list, behind those that the name has."""
        del description
        values = self._with(name, value)
        self._report(name, value, lambda: values)

    def log_row(self, name: str, description: str | None = None, **columns: Any) -> None:
        """Log a row of named values."""
        del description
        rows = self._with(name, [columns])
        self._report(name, columns, partial(_table, rows) if len(rows) > 1 else None)

    def _with(self, name: str, values: Iterable[Any]) -> list[Any]:
        """Return all values of a name, of which these are new."""
        all_of_it = self._logged.setdefault(name, [])
        all_of_it.extend(values)
        return all_of_it

    def complete(self) -> None:
        """Have what was logged written; the run is complete when its processes have ended."""
        self.flush()

    @classmethod
    def flush(cls, timeout_seconds: float = 300.0) -> None:
        """Have what was logged written."""
        del timeout_seconds
        if cls._unwritten:
            get_context().report(**{name: made() for name, made in cls._unwritten.items()})
            cls._unwritten.clear()
            ScriptRun._written_at = time.monotonic()

    def _report(self, name: str, new: Any, all_of_it: Callable[[], Any] | None) -> None:
        """Tell a value; `all_of_it` None: it is the only one."""
        if not self._is_of_run:
            print(f"{name}: {new}")  # noqa: T201 (as theirs does outside a run)
            return
        if all_of_it is None or isinstance(new, Number):
            get_context().report(**{name: new})
        if all_of_it is not None:
            self._unwritten[name] = all_of_it
            if time.monotonic() - self._written_at >= WRITTEN_EACH_S:
                self.flush()


def _table(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    names = dict.fromkeys(column for row in rows for column in row)
    return {column: [row.get(column) for row in rows] for column in names}


atexit.register(ScriptRun.flush)


class Run:
    """A run that was submitted.

    Attributes:
        id: The ID of the run.
    """

    id: str

    def __init__(
        self, work: "StartedRun[PartwiseRun]", experiment: "Experiment", rows: str = ""
    ) -> None:
        self.id = work.run_id
        self.experiment, self._work, self._rows = experiment, work, rows

    @staticmethod
    def get_context(allow_offline: bool = True) -> ScriptRun:
        """Return what a script logs by; outside a run it prints."""
        if not allow_offline and script_context() is None:
            raise InputError("Run.get_context(allow_offline=False) works in a submitted script.")
        return ScriptRun()

    @property
    def run(self) -> PartwiseRun:
        """The run as partwise has it.

        Raises:
            RunNotFoundError: It has not begun.
        """
        return PartwiseRun.open(self.id, self.experiment.workspace.store)

    def get_status(self) -> str:
        """Return "Running", "Completed", "Failed" or "Canceled"."""
        return STATUSES[self._work.status]

    def get_details(self) -> dict[str, Any]:
        """Return the ID and the status; `run.partitions` has a row of each process."""
        return {"runId": self.id, "status": self.get_status()}

    def wait_for_completion(
        self,
        show_output: bool = False,
        wait_post_processing: bool = False,
        raise_on_error: bool = True,
    ) -> dict[str, Any]:
        """Wait for the end, and return the details.

        Raises:
            RunFailedError: It failed, and `raise_on_error` is True.
        """
        del wait_post_processing
        self._work.wait()
        if show_output:
            print(self._work.logs())  # noqa: T201 (what it was asked for)
        if raise_on_error:
            self._work.result()
        return self.get_details()

    def cancel(self) -> None:
        """End it, as Ctrl-C does."""
        self._work.cancel()

    def get_metrics(self, name: str | None = None) -> dict[str, Any]:
        """Return what the first process logged, by name; of a parallel run nothing is."""
        if self._rows:
            return {}  # it has partitions by key, and none of a process
        run = self.run
        rows = run.metrics.to_pylist()
        of_first = run.partition_id(0)
        found = {each["metric"]: each["value"] for each in rows if each["partition_id"] == of_first}
        if "outputs/reported-0.json" in run.artifacts(0):
            found |= run.artifact(0, "outputs/reported-0.json")
        return found if name is None else {name: found[name]} if name in found else {}

    def get_file_names(self) -> list[str]:
        """Return the files of the first process, or of a step the one with its rows."""
        return [self._rows] if self._rows else self.run.artifacts(0)

    def download_file(self, name: str, output_file_path: str | None = None) -> None:
        """Write a file of the run to a path, or below its own name here."""
        path = Path(output_file_path or Path(name).name)
        if path.is_dir():
            path /= Path(name).name
        if name not in self.get_file_names():
            raise ArtifactNotFoundError(
                f"The run {self.id!r} has no file {name!r}: {self.get_file_names()} are there."
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        if self._rows:
            found = (each[ROW].to_pylist() for each in self.run.iter_predictions([ROW]))
            lines = "".join(f"{row}\n" for rows in found for row in rows)
            path.write_text(lines, encoding="utf-8")
        else:
            path.write_bytes(self.run.read_artifact(self.run.partition_id(0), name))

    def register_model(self, model_name: str, model_path: str | None = None) -> NoReturn:
        """Refuse it: models stay in their runs.

        Raises:
            InputError: Always.
        """
        raise InputError(
            f"There is no registry for {model_name!r}: download_file({model_path!r}) writes the "
            "file; of models by key a Catalog says which is used."
        )
