"""A predictor without a store: its models multiply, and a test says when they are loaded."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

from partwise.errors import ColumnError, IntegrityError, PartitionNotFoundError
from partwise.formatting import did_you_mean, key_text
from partwise.runs.run import ONLY
from partwise.serving.errors import DeadlineError, VersionNotServedError
from partwise.serving.questions import NO_MODEL, NOT_FINITE, OK, Answer, Question, UsedModel
from partwise.tables.keys.key_classes import KeyClass, KeyColumn

RUN = "night-1"


@dataclass(frozen=True)
class Served:
    version: int = 7
    key_columns: tuple[KeyColumn, ...] = (KeyColumn(name="store", key_class=KeyClass.INTEGER),)

    @property
    def reference(self) -> str:
        return f"catalog://sales@{self.version}"


@dataclass
class FakePredictor:
    """`price` times the store's number; stores from 1 to 9 have models, and 0 gives infinity."""

    name: str = "sales"
    current: Served = field(default_factory=Served)
    also: tuple[int, ...] = (6,)
    warm: bool = True
    refused: Any = None
    before: Callable[[], None] = lambda: None
    """Is called in place of loading models, and as errors go."""
    newer: Callable[["FakePredictor"], None] = lambda _: None
    answered: list[Question] = field(default_factory=list)
    threads: list[str] = field(default_factory=list)
    refreshed: threading.Event = field(default_factory=threading.Event)
    closed: threading.Event = field(default_factory=threading.Event)

    def is_warm(self, question: Question, version: int | None = None) -> bool:
        return self.warm

    def served(self, version: int | None = None) -> Served:
        if version not in (None, self.current.version, *self.also):
            raise VersionNotServedError(f"Version {version} is not served.")
        return self.current if version is None else replace(self.current, version=version)

    def refresh(self) -> bool:
        self.newer(self)
        self.refreshed.set()
        return True

    def close(self) -> None:
        self.closed.set()

    def versions(self) -> list[int]:
        return [self.current.version, *self.also]

    def model_of(self, key: Any = ONLY, version: int | None = None) -> Any:
        self._model(key)
        return SimpleNamespace(signature=None, column_names=("price",))

    def _model(self, key: Any) -> int | None:
        if type(key) is int and 0 <= key < 10:
            return key
        raise PartitionNotFoundError(f"No level has a model for the key {key_text([key])}.")

    def answer(
        self, question: Question, version: int | None = None, deadline: float | None = None
    ) -> Answer:
        self.threads.append(threading.current_thread().name)
        self.before()
        if deadline is not None and time.monotonic() > deadline:
            raise DeadlineError("Too late.")
        self.answered.append(question)
        columns = {
            name: values.to_pylist() if isinstance(values, pa.ChunkedArray) else values
            for name, values in question.columns.items()
        }
        if "price" not in columns:
            raise ColumnError(f"Column 'price' is missing.{did_you_mean('price', columns)}")
        known = {"price", "store"} if question.key is ONLY else {"price"}
        if question.extra == "fail" and (strange := columns.keys() - known):
            raise ColumnError(f"Column {min(strange)!r} is not known.")
        keys = [question.key] * question.n_rows if question.key is not ONLY else columns["store"]
        places: list[int] = []
        used: list[int] = []
        for key in keys:
            try:
                factor = self._model(key)
            except PartitionNotFoundError:
                if question.on_missing == "fail":
                    raise
                places.append(-1)
                continue
            if factor not in used:
                used.append(factor)
            places.append(used.index(factor))
        prices = np.array(columns["price"], float)
        factors = np.array([used[place] if place >= 0 else np.nan for place in places], float)
        values = np.where(factors == 0, np.inf, prices * factors)
        status = np.where(np.isfinite(values), OK, NOT_FINITE)
        status = np.where(np.array(places) < 0, NO_MODEL, status).astype(np.int8)
        return Answer(
            reference=self.served(version).reference,
            version=self.served(version).version,
            outputs={"prediction": values},
            models=tuple(UsedModel(run_id=RUN, key=str(key), level=0) for key in used),
            used=np.array(places, np.int32),
            status=status,
            cold=0 if self.warm else 1,
        )


REFUSED = SimpleNamespace(
    reference="catalog://sales@8", error=IntegrityError("s3://secret/sales differs.")
)
