"""The demo's table: daily sales of 100 made-up stores, drawn from a seed.

Every store has a level, a trend, a week, a year, a climate and customers of its own, who mind
prices, offers, rain and holidays more or less. That is what makes one model per store worthwhile.
"""

from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

SEED = 20260101
STORES = 100
FIRST_DAY = date(2024, 1, 1)
LAST_DAY = date(2025, 12, 31)
HELD_OUT_FROM = date(2025, 12, 1)

_HOLIDAYS = {
    (1, 1): "New Year",
    (5, 1): "Labour Day",
    (7, 4): "Summer Day",
    (10, 31): "Halloween",
    (12, 24): "Christmas Eve",
    (12, 25): "Christmas",
    (12, 26): "Boxing Day",
    (12, 31): "New Year's Eve",
}
# What a holiday makes of a day's sales; people stock up before, and shops close early or stay shut.
_HOLIDAY_FACTORS = {
    "New Year": 0.35,
    "Labour Day": 0.6,
    "Summer Day": 1.25,
    "Halloween": 1.3,
    "Christmas Eve": 1.15,
    "Christmas": 0.25,
    "Boxing Day": 0.8,
    "New Year's Eve": 1.1,
}


def write_demo_table(path: Path, stores: int | None = None) -> int:
    """Write the demo's table as Parquet, the same bytes for the same versions.

    `stores` None: `STORES`; the rows of each are the same for any number. Returned is the
    number of rows: one for each store and day.
    """
    count = STORES if stores is None else stores
    table = pa.concat_tables(_store_table(number) for number in range(1, count + 1))
    rows: int = table.num_rows
    pq.write_table(table, path, row_group_size=rows // 4)
    return rows


def forecast_errors(table: pa.Table, predictions: pa.Table) -> pa.Table:
    """Compare predictions with what a planner would otherwise take for the held-out month.

    That is the seasonal-naive forecast: mean sales on the same weekday in the four weeks before.
    (The same weekday a year earlier does worse here.) `predictions` has the columns store, date,
    sales and prediction, for that month. A row for each store comes back, with `model` and `naive`:
    the sum of absolute errors divided by the sum of sales.
    """
    since = HELD_OUT_FROM - timedelta(weeks=4)
    before = pc.and_(pc.greater_equal(table["date"], since), pc.less(table["date"], HELD_OUT_FROM))
    usual = table.filter(before).group_by(["store", "weekday"]).aggregate([("sales", "mean")])
    rows = predictions.append_column("weekday", pc.day_of_week(predictions["date"]).cast(pa.int8()))
    rows = rows.join(usual, ["store", "weekday"])
    errors = {
        name: pc.abs(pc.subtract(rows["sales"], rows[column]))
        for name, column in (("model", "prediction"), ("naive", "sales_mean"))
    }
    sums = (
        pa.table({"store": rows["store"], "sales": rows["sales"], **errors})
        .group_by("store")
        .aggregate([("sales", "sum"), ("model", "sum"), ("naive", "sum")])
        .sort_by("store")
    )
    shares = {name: pc.divide(sums[f"{name}_sum"], sums["sales_sum"]) for name in errors}
    return pa.table({"store": sums["store"], **shares})


def _days() -> list[date]:
    return [FIRST_DAY + timedelta(days=i) for i in range((LAST_DAY - FIRST_DAY).days + 1)]


def _store_table(number: int) -> pa.Table:
    random = np.random.default_rng([SEED, number])
    days = _days()
    weekday = np.array([day.weekday() for day in days])
    day_of_year = np.array([day.timetuple().tm_yday for day in days])
    holidays = [_HOLIDAYS.get((day.month, day.day)) for day in days]
    temperature, rain = _weather(random, day_of_year)
    price, promotion = _offers(random, len(days))
    expected = (
        _seasons(random, weekday, day_of_year)
        * _weather_effect(random, temperature, rain)
        * _holiday_effect(random, holidays)
        * (price / np.median(price)) ** random.uniform(-2.2, -0.8)
        * np.where(promotion, random.uniform(1.15, 1.7), 1.0)
    )
    sales = random.poisson(expected * random.gamma(100.0, 1 / 100.0, len(days)))
    return pa.table(
        {
            "store": pa.array([f"store-{number:03d}"] * len(days)),
            "date": pa.array(days),
            "weekday": pa.array(weekday, pa.int8()),
            "day_of_year": pa.array(day_of_year, pa.int16()),
            "price": pa.array(price.round(2)),
            "promotion": pa.array(promotion),
            "temperature_c": pa.array(temperature.round(1)),
            "rain_mm": pa.array(rain.round(1)),
            "holiday": pa.array(holidays, pa.string()),
            "usual_sales": _usual_sales(sales),
            "sales": pa.array(sales, pa.int64()),
        }
    )


def _seasons(random: np.random.Generator, weekday: np.ndarray, day: np.ndarray) -> np.ndarray:
    """Level, trend, week and year of a store, in units a day."""
    level = random.lognormal(6.2, 0.6)
    trend = np.linspace(1.0, random.normal(1.06, 0.08), len(day))
    week = np.exp(random.normal([-0.15, -0.15, -0.1, 0.0, 0.2, 0.35, -0.1], 0.15))
    swing, peak = random.uniform(0.03, 0.25), random.uniform(0, 366)
    year = 1 + swing * np.cos(2 * np.pi * (day - peak) / 365.25)
    advent = 1 + random.uniform(0.1, 0.5) * np.clip((day - 325) / 33, 0, 1) * (day < 360)
    return np.asarray(level * trend * week[weekday] * year * advent)


def _weather(random: np.random.Generator, day: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Degrees Celsius and millimetres of rain at a store."""
    noise = np.zeros(len(day))
    for i, shock in enumerate(random.normal(0, 2.0, len(day))):
        noise[i] = 0.75 * noise[i - 1] + shock if i else shock
    warmth = random.uniform(6, 16) - random.uniform(6, 12) * np.cos(2 * np.pi * (day - 20) / 365.25)
    is_wet = random.random(len(day)) < random.uniform(0.2, 0.45)
    return warmth + noise, np.where(is_wet, random.gamma(1.2, 5.0, len(day)), 0.0)


def _weather_effect(
    random: np.random.Generator, temperature: np.ndarray, rain: np.ndarray
) -> np.ndarray:
    """High streets want dry days; shopping centres do not mind, and beaches want warm ones."""
    by_rain = 1 - random.uniform(-0.05, 0.3) * np.clip(rain / 10, 0, 1)
    by_warmth = 1 + random.uniform(-0.01, 0.02) * np.clip(temperature - 18, 0, 12)
    return np.asarray(by_rain * by_warmth)


def _holiday_effect(random: np.random.Generator, holidays: list[str | None]) -> np.ndarray:
    strength = random.uniform(0.7, 1.2)
    factors = np.array([_HOLIDAY_FACTORS.get(name or "", 1.0) for name in holidays])
    return np.asarray(factors**strength)


def _offers(random: np.random.Generator, n_days: int) -> tuple[np.ndarray, np.ndarray]:
    """The price of each day, and whether it was an offer: both change with the week."""
    n_weeks = n_days // 7 + 1
    cache = random.uniform(4, 12) * np.cumprod(1 + random.normal(0.0006, 0.004, n_weeks))
    on_offer = random.random(n_weeks) < random.uniform(0.08, 0.2)
    price = np.where(on_offer, cache * random.uniform(0.7, 0.85, n_weeks), cache)
    return np.repeat(price, 7)[:n_days], np.repeat(on_offer, 7)[:n_days]


def _usual_sales(sales: np.ndarray) -> pa.Array:
    """Mean sales on the same weekday, five to eight weeks before: known when a month is planned."""
    unknown = np.full(7 * 8, np.nan)
    series = np.concatenate([unknown, sales])
    earlier = [series[56 - 7 * weeks : len(series) - 7 * weeks] for weeks in (5, 6, 7, 8)]
    return pa.array(np.mean(earlier, axis=0), from_pandas=True)
