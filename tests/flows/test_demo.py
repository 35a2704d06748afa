"""The demo: what its table is, how it judges forecasts, and that it ends in a result, twice."""

import re
from datetime import date, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partwise.flows.demo import table as demo_data
from partwise.flows.demo.run_demo import run_demo


def test_the_table_is_two_years_of_100_stores_and_always_the_same(tmp_path):
    paths = [tmp_path / "one.parquet", tmp_path / "two.parquet"]
    assert [demo_data.write_demo_table(path) for path in paths] == [73_100, 73_100]

    table = pq.read_table(paths[0])
    assert table.equals(pq.read_table(paths[1]))
    assert len(table["store"].unique()) == 100
    assert len(table["date"].unique()) == 731
    assert all(table[name].null_count == 0 for name in ("sales", "price", "promotion", "rain_mm"))


def test_usual_sales_are_those_of_the_weekday_five_to_eight_weeks_before(tmp_path):
    demo_data.write_demo_table(tmp_path / "sales.parquet")
    rows = pq.read_table(tmp_path / "sales.parquet", filters=[("store", "=", "store-007")])
    sales = rows["sales"].to_pylist()
    usual = rows["usual_sales"].to_pylist()

    assert usual[:56] == [None] * 56
    assert usual[300] == pytest.approx(sum(sales[300 - 7 * weeks] for weeks in (5, 6, 7, 8)) / 4)


def test_forecast_errors_are_shares_of_sales():
    first = demo_data.HELD_OUT_FROM
    before = [first - timedelta(days=days) for days in range(1, 36)]
    table = pa.table(
        {
            "store": ["a"] * 35,
            "date": before,
            "weekday": pa.array([day.weekday() for day in before], pa.int8()),
            # The fifth week before is too old to count.
            "sales": [100] * 28 + [999] * 7,
        }
    )
    predictions = pa.table(
        {
            "store": ["a", "a"],
            "date": pa.array([date(2025, 12, 1), date(2025, 12, 2)]),
            "sales": [120, 80],
            "prediction": [110.0, 80.0],
        }
    )

    errors = demo_data.forecast_errors(table, predictions).to_pylist()

    assert errors == [{"store": "a", "model": 10 / 200, "naive": 40 / 200}]


@pytest.mark.slow
def test_a_second_demo_trains_nothing(prefect_server, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo_data, "STORES", 3)

    assert run_demo(tmp_path) == 0
    first = capsys.readouterr().out.splitlines()
    assert run_demo(tmp_path) == 0
    second = capsys.readouterr().out.splitlines()

    assert first[0].startswith("table   2,193 rows written")
    assert first[-2].startswith("3 models trained; ")
    assert first[-1].startswith("next: partwise runs show demo-december --open --store /")
    assert second[0].startswith("table   kept as it is")
    assert second[-2].startswith("0 models retrained, 3 kept; ")
    assert re.fullmatch(r" +cluster .* s, load .* s, train .* s", first[2])
    assert first[first.index("") : -2] == second[second.index("") : -2]
