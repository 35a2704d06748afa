"""The report as a whole: any run gives a file that is whole, safe, small and says what is so."""

import json
import time
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.errors import InputError
from partwise.outcomes import CANCELLED
from partwise.reports.report import render_report, write_report
from partwise.runs.documents import REPORT_FILE, run_path
from partwise.runs.garbage import collect_garbage
from tests.reports.conftest import at
from tests.reports.page import check

EVIL = "<script>alert('x')</script> & \"quoted\" </style><b>"


def done(key, **more):
    row = {"key": key, "rows": 10, "seconds": 0.5, "host": "vm/0", "metrics": {"rmse": 1.0}}
    return {"attempts": 1} | row | more


def failed(key, message="bad", fingerprint="f", **more):
    return done(
        key,
        status="FAILED",
        error_type="package.BadError",
        error_message=message,
        error_fingerprint=fingerprint,
        metrics={},
        **more,
    )


def test_the_headline_says_what_the_run_came_to(make_ledger) -> None:
    run = make_ledger.complete([done("a"), done("b"), failed("c")])
    page = check(render_report(run))
    assert "partwise training run run PARTIAL FAILURE" in page.text
    assert "Partitions 3 Rows 30 Took" in page.text
    assert "2 DONE 66.7% 1 FAILED 33.3%" in page.text
    assert "1.5 s cluster 500 ms load 8 s train" in page.text
    assert run.path in page.text


def test_a_message_or_key_is_text_and_never_markup(make_ledger) -> None:
    rows = [done(EVIL, metrics={EVIL: 1.0}), failed(f"{EVIL} 2", EVIL), failed("c", EVIL * 40, "g")]
    rows.append(done("d", status="SKIPPED", reason=EVIL, host=EVIL, metrics={EVIL: 2.0}))
    call = {"flow": EVIL, EVIL: [EVIL], "deep": {EVIL: {"x": EVIL}}}
    html = render_report(make_ledger.complete(rows, call=call))
    page = check(html)
    assert "<script" not in html
    assert page.text.count(EVIL) > 8


def test_control_characters_are_shown_as_pictures(make_ledger) -> None:
    page = check(render_report(make_ledger.complete([failed("a\x00b", "red \x1b[31m\x7f\n2nd")])))
    assert "a␀b" in page.text
    assert "red ␛[31m␡ 2nd" in page.text


def test_the_same_complete_run_gives_the_same_report(make_ledger) -> None:
    run = make_ledger.complete([done(f"k{i}", seconds=i / 7) for i in range(2000)])
    assert render_report(run) == render_report(run.refresh())


def lost(key):
    reason = "the worker died"
    return done(key, status="INTERNAL_ERROR", reason=reason, rows=None, seconds=None, host=None)


ODD_RUNS = {
    "one partition": [done("a")],
    "all skipped": [done("a", status="SKIPPED", reason="few rows", metrics={}, seconds=None)],
    "all failed": [failed("a"), failed("b")],
    "all lost": [lost("a"), lost("b")],
    "cancelled": [
        done("a"),
        lost("b") | {"status": "CANCELLED", "reason": "cancelled"},
    ],
    "no times": [done("a", seconds=None, rows=None, host=None)],
    "no hosts": [done("a", host=None), done("b", host=None)],
    "odd numbers": [
        done("a", metrics={"x": float("nan"), "y": float("inf"), "z": 1e308}),
        done("b", metrics={"x": 1.0, "y": float("-inf"), "z": -1e308}),
        done("c", metrics={"x": 5e-324, "w": 1.0}, rows=0, seconds=0.0),
        done("d", metrics={"x": 1.0000000000000002}, rows=10**12, seconds=1e6),
    ],
    "long keys": [done("ü" * 150), done("x" * 300), done("Zürich 東京 \u202e"), done("")],
    "a null key": [done(None), done("a")],
    "an empty failure": [failed("a", ""), failed("b", None, None)],
}


@pytest.mark.parametrize("rows", ODD_RUNS.values(), ids=ODD_RUNS.keys())
def test_odd_runs_have_a_report(make_ledger, rows) -> None:
    run = make_ledger.complete(rows, CANCELLED if rows[-1].get("status") == "CANCELLED" else None)
    page = check(render_report(run))
    assert run.status.value.replace("_", " ") in page.text
    for row in rows:
        if row.get("reason"):
            assert row["reason"] in page.text
    assert "nan" not in page.text.split()


def test_values_that_are_no_numbers_are_told_apart(make_ledger) -> None:
    page = check(render_report(make_ledger.complete(ODD_RUNS["odd numbers"])))
    assert "1 not a number: a" in page.text
    assert "1 +infinite: a" in page.text
    assert "1 -infinite: b" in page.text


def test_keys_of_several_columns_read_as_the_command_line_takes_them(make_ledgers) -> None:
    maker = make_ledgers(names=("store", "day"))
    rows = [failed(("Basel, SBB", at(0).date())), failed(("Bern", at(86400).date()))]
    page = check(render_report(maker.complete(rows)))
    assert '"Basel, SBB",2026-11-21' in page.text
    assert "Bern,2026-11-22" in page.text
    assert "store (string), day (date)" in page.text


def test_a_run_at_work_shows_what_is_committed(make_ledger) -> None:
    run = make_ledger.leave([done("a"), failed("b")])
    page = check(render_report(run))
    assert "IN PROGRESS The run is at work, or its process died." in page.text
    assert "Partitions so far 2" in page.text
    with pytest.raises(InputError, match="'run' is not complete"):
        write_report(run)


def test_a_run_that_only_began_has_a_report(make_ledger) -> None:
    run = make_ledger.leave([])
    assert "Partitions so far 0" in check(render_report(run)).text
    run.store.delete("runs/run/generations/0001.json")
    page = check(render_report(run.refresh()))
    assert "its process ended before it wrote down its call" in page.text


def test_settings_fingerprints_and_generations_are_shown(make_ledger) -> None:
    make_ledger.complete([done("a")], code_fingerprint="d" * 64)
    call = {"flow": "train_models", "arguments": {"trainer": {"rounds": 7}, "serde": None}}
    run = make_ledger.complete([done("a")], call=call, code_fingerprint=None)
    page = check(render_report(run))
    assert "flow train_models trainer. rounds 7 Not set: serde" in page.text
    assert "code unknown: counts as changed" in page.text
    assert "2 2026-" in page.text
    assert "dddddddddddd" in page.text
    assert f"python {run.read_generation_document().environment['python']}" in page.text


def test_a_call_that_is_not_known_says_why(make_ledger) -> None:
    run = make_ledger.complete([done("a")], call_obstacle="the data is a frame in memory")
    assert "It is not known: the data is a frame in memory." in check(render_report(run)).text


def test_the_report_lies_beside_the_run_until_a_newer_generation_ends(make_ledger) -> None:
    run = make_ledger.complete([done("a")])
    path = write_report(run)
    assert path == f"{run.path}/report.html"
    first = run.store.read(run_path("run", REPORT_FILE))
    assert first == render_report(run).encode()
    second = make_ledger.complete([done("a"), done("b")])
    assert run.store.read(run_path("run", REPORT_FILE)) == first
    write_report(second)
    assert "Partitions 2" in check(run.store.read(run_path("run", REPORT_FILE)).decode()).text


def test_tidying_leaves_the_report_alone(make_ledger) -> None:
    make_ledger.complete([done("a")])
    run = make_ledger.complete([done("a")])
    write_report(run)
    assert collect_garbage(run.store, "run", dry_run=False, grace_hours=0).files
    assert run.store.exists(run_path("run", REPORT_FILE))
    assert (
        pq.read_table(run.store.local_path("runs/run/generations/0002.ledger.parquet")).num_rows
        == 1
    )


def test_a_kept_partition_counts_as_kept_and_its_timeline_is_told_apart(make_ledger) -> None:
    make_ledger.complete([done("a")])
    run = make_ledger.complete([done("a", generation=1), done("b", status="SKIPPED", seconds=None)])
    page = check(render_report(run))
    assert "1 run, 1 kept from before" in page.text
    assert "this is generation 1, the newest that did anything" in page.text


@settings(max_examples=25)
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "key": st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
                "status": st.sampled_from(["DONE", "FAILED", "SKIPPED", "INTERNAL_ERROR"]),
                "shard": st.integers(0, 3),
                "rows": st.none() | st.integers(0, 2**40),
                "seconds": st.none() | st.floats(0, 1e7),
                "host": st.sampled_from([None, "a/0", "a/1", "b/tcp://1.2.3.4:5"]),
                "peak_memory_bytes": st.none() | st.integers(0, 2**50),
                "finished_at": st.integers(0, 10**6).map(at),
                "reason": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
                "error_fingerprint": st.sampled_from([None, "f", "g"]),
                "metrics": st.dictionaries(st.sampled_from(["rmse", "r2", "x"]), st.floats()),
            }
        ),
        min_size=1,
        max_size=30,
        unique_by=lambda row: row["key"],
    )
)
def test_any_ledger_has_a_whole_report(make_ledgers, rows) -> None:
    check(render_report(make_ledgers().complete(rows)))


@pytest.mark.slow
def test_a_hundred_thousand_partitions_stay_small_and_quick(make_ledger) -> None:
    count = 100_000
    began = time.process_time()
    metrics = {f"metric {EVIL} {i}": 0.0 for i in range(60)}
    rows = [
        done(
            f"{EVIL * 5} {i}",
            seconds=0.001 + i % 977 / 100,
            rows=1 + i % 4999,
            shard=i % 20_000,
            host=f"node-{i % 300}/{i % 7}",
            finished_at=at(i / 9),
            peak_memory_bytes=i * 1000,
            metrics={name: (i * 7919 % 1009) / (j + 1) for j, name in enumerate(metrics)}
            if i % 50 == 0
            else {"rmse": i % 101},
        )
        if i % 4
        else failed(f"{EVIL * 5} {i}", f"{EVIL * 40} {i}", f"{i % 5000:012x}", shard=i % 20_000)
        for i in range(count)
    ]
    run = make_ledger.complete(rows).refresh()
    assert run.ledger.num_rows == count
    made = time.process_time() - began
    began = time.process_time()
    html = render_report(run)
    took = time.process_time() - began
    assert len(html.encode()) < 3_000_000
    # A third of what it takes to make up and write the rows, on an idle machine.
    assert took < 3 * made
    page = check(html)
    assert len(page.of("circle")) == 1500
    assert "25,000 partitions went wrong, in 1,250 ways" in page.text


def test_what_other_programs_read_of_a_report_is_its_generation(make_ledger) -> None:
    meta = check(render_report(make_ledger.complete([done("a")]))).of("meta")
    assert {"name": "partwise-generation", "content": "1 complete"} in meta
    assert json.dumps(meta).count("http") == 1  # http-equiv: nothing is loaded from anywhere


def compared(**arguments: Any) -> dict[str, Any]:
    """What a comparison of two runs was called with."""
    known = {"candidates": ["run://first@1", "run://second@1"], **arguments}
    return {"call": {"flow": "compare_models", "arguments": known}}


def test_a_comparison_in_which_nobody_has_a_value_says_so(make_ledgers) -> None:
    maker = make_ledgers(kind="compare")
    rows = [done("a", status="SKIPPED", reason="no labels", metrics={"unlabelled_rows": 10.0})]
    page = check(render_report(maker.complete(rows, **compared(metric="mae"))))
    assert "second against first" in page.text
    assert "No partition has a value of both." in page.text


def test_an_evaluation_of_models_of_which_nobody_knows_how_good_they_were(make_ledgers) -> None:
    arguments = {
        "inference_run_id": "i",
        "label": "y",
        "metric": "mae",
        "worse_by": 0.2,
        "confidence": 0.99,
        "min_rows": 30,
    }
    maker = make_ledgers(kind="evaluate")
    metrics = {"mae": 1.0, "labelled_rows": 60.0, "model_level": 0.0}
    run = maker.complete(
        [done("a", metrics=metrics)],
        call={"flow": "evaluate_predictions", "arguments": arguments},
    )
    page = check(render_report(run))
    assert "1 could not be compared, since nobody knows how good the model was" in page.text
