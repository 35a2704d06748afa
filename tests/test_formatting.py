"""Quantities as text: rounded first, and then put into a unit."""

import numpy as np
import pytest

from partwise.formatting import duration, number, plain_value, reason, size


@pytest.mark.parametrize(
    ("value", "text"),
    [(9999.4, "9999"), (9999.6, "10,000"), (-9999.6, "-10,000"), (1234.56, "1235"), (0.5, "0.5")],
)
def test_a_number_has_no_power_of_ten_where_plain_digits_do(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(59.94, "59.9 s"), (59.96, "1 min 00 s"), (3599.4, "59 min 59 s"), (3599.6, "1 h 00 min")],
)
def test_a_minute_is_never_sixty_seconds(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(999, "999 B"), (999_949, "999.9 KB"), (999_950, "1.0 MB"), (10**15, "1000.0 TB")],
)
def test_a_size_is_never_a_thousand_of_a_unit_that_has_a_next(size_bytes, text):
    assert size(size_bytes) == text


@pytest.mark.parametrize("value", [np.datetime64("2026-01-01", "ns"), np.timedelta64(5, "ns")])
def test_a_time_is_no_number_of_json(value):
    assert plain_value(np.int64(5)) == plain_value(np.array(5)) == 5
    with pytest.raises(TypeError, match=r"JSON holds no (datetime|timedelta)64"):
        plain_value(value)


def test_a_reason_is_the_line_of_the_root_without_what_makes_it_bold():
    said = (
        "Exception encountered when calling Dense.call().\n\n\x1b[1mNo batch of 3.\x1b[0m\n\nwith x"
    )
    outer = ValueError("advice")
    outer.__cause__ = ValueError(said)
    assert reason(outer) == "No batch of 3."
    assert reason(ValueError()) == "ValueError."
