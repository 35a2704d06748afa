"""Many models behind one call: which model each row has, and what it predicts.

A predictor has no global state, and may be used by any number of threads. The server is a predictor
behind HTTP.
"""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from partwise.catalogs.documents import reference_of
from partwise.errors import (
    IntegrityError,
    PartitionNotFoundError,
    StoreError,
)
from partwise.formatting import key_text
from partwise.models.serdes import resolve_serde, serde_by_name
from partwise.runs.bundle import read_model
from partwise.runs.run import ONLY
from partwise.serving.columns import columns_of_rows
from partwise.serving.errors import DeadlineError, VersionNotServedError
from partwise.serving.groups import Candidates, candidates_of, groups_of
from partwise.serving.levels import Level, Place
from partwise.serving.model_cache import ModelCache
from partwise.serving.questions import NO_MODEL, NOT_FINITE, OK, Answer, Question, UsedModel
from partwise.serving.served import PredictorOptions, Served, name_of, newer_than, open_served
from partwise.serving.served_model import ServedModel
from partwise.store.store import Store
from partwise.tables.keys.partition_keys import Key, KeyColumn

logger = logging.getLogger(__name__)

_DEFAULT = PredictorOptions()
_PAUSE = 3.0
"""How long the loading of a new version's models pauses, as a factor of the CPU time it takes: to
wait for a bucket holds nobody up."""
_AGAIN_S = 8.0
"""When a version that was refused is first tried again; from then on after twice as long each time.
To open a large version keeps a core busy for a second."""
_AGAIN_MOST_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A newer version that could not be taken up."""

    reference: str
    error: Exception
    pause_s: float
    """How long it is left alone."""
    again_at: float
    """When it is tried again, as `time.monotonic` counts."""


class Predictor:
    """The models of a catalog's version, or of a run, ready to predict for any of its keys.

    Models are loaded when they are first needed, and held as long as they fit.

    Example:
        >>> predictor = Catalog.open("sales", "/data/models").predictor()  # doctest: +SKIP
        >>> predictor.predict([{"price": 2.5}], "store-7")["prediction"]  # doctest: +SKIP
    """

    def __init__(self, reference: str, store: Store, options: PredictorOptions = _DEFAULT) -> None:
        self.name = name_of(reference)
        """The name of the catalog, or the ID of the run."""
        self.options = options
        self.cache = ModelCache(options.cache_bytes)
        self.refused: Refused | None = None
        """The newer version that could not be taken up; None: there is none."""
        self._reference = reference
        self._store = store
        self._serde = resolve_serde(options.serde)
        self._refreshing = Lock()
        self._is_closed = Event()
        self.current = open_served(reference, store, options)
        """What answers now."""
        self._also = {
            number: open_served(reference_of(self.name, number), store, options)
            for number in options.also
        }
        if options.warm == "all":
            self._warm(self.current, None)

    @classmethod
    def open(
        cls,
        reference: str,
        store: Store | str | Path = "artifacts",
        options: PredictorOptions = _DEFAULT,
    ) -> "Predictor":
        """Open a catalog or a run.

        Args:
            reference: catalog://NAME for the newest version and each one that follows (`refresh`),
                catalog://NAME@VERSION for that one, or run://ID.
            store: The artifact store: its URL, a folder, or a `Store`.
            options: How models are held.

        Raises:
            InputError: The reference is of none of these forms, or a level has other key columns.
            CatalogNotFoundError, RunNotFoundError: There is no such version or run.
            ModelNotFoundError: It has no model of the format.
            SignatureError, IntegrityError, RunFormatError: It is not to be trusted, or damaged.
        """
        return cls(reference, Store.of(store), options)

    def served(self, version: int | None = None) -> Served:
        """Return what answers for a version; None: the newest.

        Raises:
            VersionNotServedError: It is none of those that are served.
        """
        current = self.current
        if version is None or version == current.version:
            return current
        try:
            return self._also[version]
        except KeyError:
            numbers = [current.version, *self._also]
            raise VersionNotServedError(
                f"The version {version} of {self.name!r} is not served: "
                f"{', '.join(map(str, numbers))} is."
            ) from None

    def versions(self) -> list[int]:
        """Return the versions that are served, the newest first."""
        return [self.current.version, *self._also]

    def predict(
        self,
        rows: Any,
        key: Key = ONLY,
        *,
        version: int | None = None,
        on_missing: Literal["fail", "null"] = "fail",
        extra: Literal["fail", "ignore"] = "fail",
    ) -> pa.Table:
        """Predict rows, in their order.

        Args:
            rows: A table of Arrow, a frame, a list of objects or a mapping of columns.
            key: That of all rows; without it, the key columns stand among the columns.
            version: One that is served; None: the newest.
            on_missing: "null" gives rows without any model null and the status "no model".
            extra: "ignore" lets columns pass that a model does not know.

        Returns:
            prediction (or prediction_0 ... of several classes), model_run, model_key, model_level
            and status, a row for each.

        Raises:
            KeyClassError: The key is of another class.
            PartitionNotFoundError: No level has a model for it.
            ColumnError: A column is missing or not known, or its values do not fit.
            InputError: The model refuses the rows.
            IntegrityError: A model is damaged, and no other level answers.
        """
        columns, n_rows = columns_of_rows(rows)
        question = Question(
            columns=columns, n_rows=n_rows, key=key, on_missing=on_missing, extra=extra
        )
        return self.answer(question, version).to_arrow()

    def is_warm(self, question: Question, version: int | None = None) -> bool:
        """Whether `answer` needs to load no model.

        Raises what `answer` does of keys.
        """
        served = self.served(version)
        return all(
            not found.models or found.models[0].place in self.cache
            for found, _ in groups_of(served, question)
        )

    def answer(
        self, question: Question, version: int | None = None, deadline: float | None = None
    ) -> Answer:
        """Answer a question; see `predict`.

        Args:
            question: What is asked.
            version: One that is served; None: the newest.
            deadline: When to give up, as `time.monotonic` counts.

        Raises:
            DeadlineError: It was over before all models had answered.
        """
        served = self.served(version)
        cold = self.cache.loads
        key_names = {column.name for column in served.key_columns}
        parts = []
        for found, rows in groups_of(served, question):
            if deadline is not None and time.monotonic() > deadline:
                raise DeadlineError("The time for an answer is over; the models go on loading.")
            parts.append((rows, *self._answer_rows(served, found, rows, question, key_names)))
        return _joined(served, question.n_rows, parts, self.cache.loads - cold)

    def _answer_rows(
        self,
        served: Served,
        found: Candidates,
        rows: np.ndarray | None,
        question: Question,
        key_names: set[str],
    ) -> tuple[dict[str, np.ndarray] | None, UsedModel | None]:
        """Return predictions for rows of one key, and what made them; None: nothing can."""
        columns, n_rows = question.columns, question.n_rows
        if rows is not None:
            n_rows = len(rows)
            columns = {name: _taken(values, rows) for name, values in columns.items()}
        damaged: IntegrityError | StoreError | None = None
        for candidate in found.models:
            try:
                model = self.loaded(candidate.level, candidate.place)
            except (IntegrityError, StoreError) as error:
                logger.warning("%s The next level is asked.", error)
                damaged = error
                continue
            if question.extra == "fail":
                model.check_columns(columns, key_names)
            if rows is None:
                columns = _with_key(columns, served.key_columns, found.key, model, n_rows)
            return model.predict(columns, n_rows), candidate.used
        if served.constant is not None:
            used = UsedModel(run_id="", key="", level=len(served.levels))
            return {"prediction": np.full(n_rows, served.constant)}, used
        if damaged is not None:
            raise damaged
        if question.on_missing == "null":
            return None, None
        raise _no_model(served, found.key)

    def loaded(self, level: Level, place: Place) -> ServedModel:
        """Return a model, from the cache or the store.

        Raises:
            IntegrityError, StoreError: It cannot be read.
        """
        return self.cache.load(place, lambda: self._load(level, place))

    def _load(self, level: Level, place: Place) -> ServedModel:
        file, weights = place.model, place.weights
        content = level.read(place, file)
        beside = {} if weights is None else {weights.filename: level.read(place, weights)}
        categories = None
        if place.categories is not None:
            categories = pa.ipc.open_stream(level.read(place, place.categories)).read_all()
        model = read_model(serde_by_name(file.serde, self._serde), content, file.filename, beside)
        size = len(content) + sum(map(len, beside.values()))
        return ServedModel(model, categories, size)

    def model_of(self, key: Key = ONLY, version: int | None = None) -> ServedModel:
        """Return the model that answers for a key.

        Raises:
            PartitionNotFoundError: It has none, though a constant may answer.
            KeyClassError: The key is of another class.
            IntegrityError: It cannot be read.
        """
        served = self.served(version)
        found = candidates_of(served, () if key is ONLY and not served.key_columns else key)
        for candidate in found.models:
            return self.loaded(candidate.level, candidate.place)
        raise _no_model(served, key)

    def refresh(self) -> bool:
        """Take up what is newer of the catalogs, once it is verified and warm.

        One that cannot be opened, or whose models cannot be read, changes nothing: `refused` says
        so until another one follows, and it is tried again after 8 seconds, 16, 32 and so on, at
        last every 10 minutes.

        Returns:
            Whether something else answers now.
        """
        with self._refreshing:
            newer = newer_than(self.current, self._reference, self._store, self.options)
            if newer is None or self._is_left_alone(newer):
                return False
            try:
                served = open_served(self._reference, self._store, self.options, self.current)
                if self.options.warm != "none":
                    with self.cache.room_for_another_version():
                        self._warm(served, None if self.options.warm == "all" else self.current)
            except Exception as error:
                # Whatever the serde of a model raises, the version before it goes on.
                self._refuse(newer, error)
                return False
            if self._is_closed.is_set():
                return False
            # From here on questions are answered by it; those that have begun keep the old one.
            self.current = served
            self.refused = None
            return True

    def _is_left_alone(self, newer: str) -> bool:
        refused = self.refused
        return (
            refused is not None
            and refused.reference == newer
            and time.monotonic() < refused.again_at
        )

    def _refuse(self, newer: str, error: Exception) -> None:
        if self.refused is None or self.refused.reference != newer:
            logger.error("%s is not taken up: %s: %s", newer, type(error).__name__, error)
            pause_s = _AGAIN_S
        else:
            pause_s = min(2 * self.refused.pause_s, _AGAIN_MOST_S)
        again_at = time.monotonic() + pause_s
        self.refused = Refused(reference=newer, error=error, pause_s=pause_s, again_at=again_at)

    def _warm(self, new: Served, old: Served | None) -> None:
        """Load the models of a version; with an old one, those whose keys are loaded of it."""
        warmed: dict[Any, tuple[Level, Place]] = {}
        its_bytes = 0
        for number, level in enumerate(new.levels):
            ids: Iterable[str] = level.partition_ids()
            if old is not None:
                before = old.levels[number].places_met().items()
                ids = [name for name, place in before if place in self.cache]
            for name in ids:
                if self._is_closed.is_set():
                    return
                # Its own alone: those of the version that still answers leave for them.
                if old is None and its_bytes >= self.cache.most_bytes:
                    break
                place = level.place(name)
                if place is None or place.identity in warmed:
                    continue
                begun = time.thread_time()
                its_bytes += self.loaded(level, place).size_bytes
                warmed[place.identity] = level, place
                if new is not self.current:
                    # Python runs one thread at a time: without pauses every answer meanwhile would
                    # wait for the loading.
                    self._is_closed.wait(_PAUSE * (time.thread_time() - begun))
        if old is None:
            # What answered meanwhile may have taken their place; and now its models go first.
            for level, place in warmed.values():
                self.loaded(level, place)

    def close(self) -> None:
        """Let all models go; a version that is being warmed is not taken up."""
        self._is_closed.set()
        self.cache.clear()


def _with_key(
    columns: Mapping[str, Any],
    key_columns: Sequence[KeyColumn],
    key: Key,
    model: ServedModel,
    n_rows: int,
) -> Mapping[str, Any]:
    """Return columns with those of the key of which the model has features, and rows lack."""
    names = [column.name for column in key_columns]
    lacking = model.sources.intersection(names).difference(columns)
    if not lacking:
        return columns
    values = zip(names, key if isinstance(key, tuple) else (key,), strict=True)
    return {**columns, **{name: [value] * n_rows for name, value in values if name in lacking}}


def _taken(values: Any, rows: np.ndarray) -> Any:
    if isinstance(values, pa.ChunkedArray):
        return values.take(pa.array(rows))
    return [values[row] for row in rows]


def _no_model(served: Served, key: Key) -> PartitionNotFoundError:
    values = key if isinstance(key, tuple) else (key,)
    return PartitionNotFoundError(
        f"{served.reference} has no model for the key {key_text(values)!r}."
    )


_Part = tuple[np.ndarray | None, dict[str, np.ndarray] | None, UsedModel | None]


def _joined(served: Served, n_rows: int, parts: Sequence[_Part], cold: int) -> Answer:
    """Return the predictions of all groups as one answer."""
    models = dict.fromkeys(used for _, _, used in parts if used is not None)
    numbers = {used: number for number, used in enumerate(models)}
    if len(parts) == 1 and parts[0][0] is None and (outputs := parts[0][1]) is not None:
        chosen = np.zeros(n_rows, np.int32)
        status = _status(outputs, n_rows)
    else:
        chosen = np.full(n_rows, -1, np.int32)
        status = np.full(n_rows, NO_MODEL, np.int8)
        groups: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
        for places, found, used in parts:
            if found is None or used is None:
                continue
            rows = np.arange(n_rows) if places is None else places
            chosen[rows] = numbers[used]
            status[rows] = _status(found, len(rows))
            for name, values in found.items():
                groups.setdefault(name, []).append((rows, values))
        outputs = {name: _spread(each, n_rows) for name, each in groups.items()}
        if not outputs:
            outputs = {"prediction": _nothing(n_rows, np.dtype(np.float64))}
    return Answer(
        reference=served.reference,
        version=served.version,
        outputs=outputs,
        models=tuple(models),
        used=chosen,
        status=status,
        cold=cold,
    )


def _spread(groups: Sequence[tuple[np.ndarray, np.ndarray]], n_rows: int) -> np.ndarray:
    """Return the values of all groups in their rows, of one type, whichever group is first."""
    types = {values.dtype for _, values in groups}
    kinds = {dtype.kind for dtype in types}
    # Truths are no numbers, and nor is text: with others each stays what it is.
    is_one = kinds <= {"i", "u", "f"} or kinds == {"b"}
    dtype = np.result_type(*types) if is_one else np.dtype(object)
    is_whole = sum(len(rows) for rows, _ in groups) == n_rows
    spread = np.empty(n_rows, dtype) if is_whole else _nothing(n_rows, dtype)
    for rows, values in groups:
        spread[rows] = values
    return spread


def _nothing(n_rows: int, dtype: np.dtype) -> np.ndarray:
    """Return what stands where there is no prediction: NaN of numbers, and None."""
    if dtype.kind == "f":
        return np.full(n_rows, np.nan, dtype)
    return np.full(n_rows, None, object)


def _status(outputs: Mapping[str, np.ndarray], n_rows: int) -> np.ndarray:
    status = np.full(n_rows, OK, np.int8)
    for values in outputs.values():
        if values.dtype.kind == "f":
            status[~np.isfinite(values)] = NOT_FINITE
    return status
