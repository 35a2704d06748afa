"""What becomes of each key of an evaluation, by what its ledger says."""

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from partwise.catalogs.evaluated import (
    FAILED,
    LABELLED,
    LOST,
    NO_MODEL,
    WORSE,
    Evaluated,
)
from partwise.catalogs.measured import Measured
from partwise.errors import GateError
from partwise.planning.nights import check_gate, needs_attention
from partwise.store.store import Store
from tests.run_maker import RunMaker

N = np.nan


def evaluated(**columns: Any) -> Evaluated:
    """Return an evaluation of keys "0", "1" and so on; the defaults are those of one that is kept.

    Each column is as long as there are keys.
    """
    n = len(next(iter(columns.values())))
    given: dict[str, Any] = {
        "values": [1.0] * n,
        "values_then": [1.0] * n,
        "levels": [0] * n,
        "is_done": [True] * n,
        "labelled": [60] * n,
        "lost": [0] * n,
        **columns,
    }
    arrays = {name: np.array(values) for name, values in given.items()}
    return Evaluated(
        run_id="e",
        inference_run_id="i",
        models=("run://t",),
        label="y",
        metric="rmse",
        maximized=False,
        worse_by=0.2,
        confidence=0.99,
        min_rows=30,
        keys=pa.table({"key.k": [str(each) for each in range(n)]}),
        counts={LABELLED: arrays.pop("labelled"), LOST: arrays.pop("lost")},
        rows_then=np.full(n, 60.0),
        confidences=np.full(n, 1.0),
        drift=pa.table({}),
        tests=0,
        **arrays,
    )


def test_predictions_that_are_no_numbers_are_worse_than_any() -> None:
    found = evaluated(
        values=[N, 0.9, 0.9, N, N, 0.9, 2.0],
        values_then=[1.0, 1.0, N, 1.0, 1.0, 1.0, 1.0],
        labelled=[0, 5, 59, 0, 0, 5, 60],
        lost=[60, 55, 1, 29, 0, 0, 0],
    )
    expected = [WORSE, WORSE, WORSE, "few rows", "pending", "few rows", WORSE]
    assert found.verdicts.tolist() == expected
    assert found.keys_to_train()["k"].to_pylist() == ["0", "1", "2", "6"]
    # Where one night all of them are lost, the rows are more to blame.
    with pytest.raises(GateError, match="4 of 4 keys got worse"):
        check_gate(found, 0.5)


def test_a_key_that_could_not_be_evaluated_is_told_of_and_not_trained() -> None:
    found = evaluated(
        is_done=[False, True, True], levels=[-1, -1, 0], labelled=[0, 0, 60], values=[N, N, 1.0]
    )
    assert found.verdicts.tolist() == [FAILED, NO_MODEL, "kept"]
    assert found.keys_to_train()["k"].to_pylist() == ["1"]
    assert found.lines == [
        "1 key could not be evaluated",
        "1 key had no own model",
        "1 key stayed as good as before",
    ]
    assert needs_attention(evaluated(is_done=[False]))
    assert not needs_attention(evaluated(is_done=[True]))


def test_a_key_that_is_named_like_another_column_keeps_its_values() -> None:
    found = replace(
        evaluated(values=[1.0, 2.0]),
        keys=pa.table({"key.verdict": ["a", "b"], "partition_id": ["a", "b"]}),
        drift=pa.table({"place": pa.array([], pa.int64()), "drifted": pa.array([], pa.bool_())}),
    )
    assert found.table["key.verdict"].to_pylist() == ["a", "b"]
    assert found.table["verdict"].to_pylist() == ["kept", WORSE]


@pytest.mark.parametrize(
    ("arguments", "metric", "expected"),
    [
        ({"metric": "shop.scores:loss"}, "loss", "loss"),
        ({"metric": "pinball:0.9"}, "pinball:0.9", "pinball:0.9"),
        # A function of a script is not written down.
        ({}, "loss/run-2", "loss"),
        ({}, "trained_on/run-2", "metric"),
    ],
)
def test_the_metric_has_its_name_where_it_is_a_function_of_a_script(
    local_store: Store, arguments: dict[str, Any], metric: str, expected: str
) -> None:
    maker = RunMaker(local_store, "night", kind="compare", metric=metric)
    maker.begin(call_known={"flow": "compare_models", "arguments": arguments})
    maker.commit(("a", "DONE", 7.0))
    assert Measured.of(maker.end(1), ("trained_on",)).metric == expected
