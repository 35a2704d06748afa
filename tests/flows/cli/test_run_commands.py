"""`partwise runs` list, logs, model, export and compare: what they print of made-up runs."""

import csv
import json
import re
import secrets
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partwise.flows.cli.main import main
from partwise.outcomes import CANCELLED
from partwise.runs.bundle import LOG_FILENAME, BundleWriter
from partwise.runs.documents import execution_token, segment_file
from partwise.runs.kinds import RunKind
from partwise.runs.ledger import LedgerRow, segment_table, write_table
from partwise.store.store import Store
from partwise.tables.keys.partition_keys import partition_ids
from tests.run_maker import RunMaker


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "store")


@pytest.fixture
def partwise(capsys, url):
    """Carry out a command of `partwise runs` on the store of the test."""

    def call(*words: object) -> tuple[int, str, str]:
        code = main(["runs", *map(str, words), "--store", url])
        return code, *capsys.readouterr()

    return call


def make(url: str, run_id: str, *partitions: tuple[str, str, float], **options) -> None:
    maker = RunMaker(Store.parse(url), run_id, **options)
    maker.begin()
    maker.commit(*partitions)
    maker.end(len(partitions))


def done(**values: float) -> list[tuple[str, str, float]]:
    return [(key, "DONE", value) for key, value in values.items()]


def test_a_run_whose_models_are_newer_now_is_named_with_the_command(partwise, url) -> None:
    def work(run_id: str, kind: RunKind, value: float | None, of: str = "") -> str:
        maker = RunMaker(Store.parse(url), run_id, kind)
        maker.identity = replace(maker.identity, models=(f"run://{of}",) if of else ())
        maker.begin("resume")
        if value is None:
            maker.commit(carried=maker.open().ledger)
        else:
            maker.commit(*done(a=value))
        maker.end(1)
        return partwise("show", run_id)[1]

    work("sales", "train", 1.0)
    assert "stale" not in work("used", "infer", 1.0, of="sales")
    # A resume that finds nothing to do changes no model.
    work("sales", "train", None)
    assert "stale" not in partwise("show", "used")[1]
    work("sales", "train", 2.0)
    shown = " ".join(partwise("show", "used")[1].split())
    resume = f"partwise runs resume used --store {url}"
    assert f"stale sales has newer models: `{resume}` works on what changed" in shown
    assert "stale" not in work("used", "infer", 2.0, of="sales")
    # That the other run is damaged or gone is no news for this one.
    for document in Path(url, "runs", "sales", "generations").glob("*.summary.json"):
        document.write_text("{")
    assert "SUCCESS" in partwise("show", "used")[1]
    assert main(["runs", "rm", "sales", "--store", url, "--yes"]) == 0
    assert "stale" not in partwise("show", "used")[1]


class TestList:
    @pytest.fixture(autouse=True)
    def runs(self, url) -> None:
        make(url, "nightly-1", *done(a=1.0), kind="train")
        make(url, "nightly-2", ("a", "FAILED", 1.0), *done(b=1.0), kind="train")
        make(url, "used", ("a", "INTERNAL_ERROR", 1.0), *done(b=1.0), kind="infer")
        stopped = RunMaker(Store.parse(url), "stopped")
        stopped.begin()
        stopped.commit(("a", "CANCELLED", 1.0))
        stopped.end(1, CANCELLED)
        unended = RunMaker(Store.parse(url), "at-work")
        unended.begin()
        unended.commit(("a", "SKIPPED", 1.0))
        unended.die()

    @pytest.mark.parametrize(
        ("words", "names"),
        [
            ((), "at-work nightly-1 nightly-2 stopped used"),
            (("--name", "nightly-*"), "nightly-1 nightly-2"),
            (("--kind", "infer", "--kind", "map"), "at-work stopped used"),
            (("--status", "SUCCESS"), "nightly-1"),
            (("--status", "IN_PROGRESS", "--status", "CANCELLED"), "at-work stopped"),
            (("--status", "PARTIAL_FAILURE", "--kind", "train"), "nightly-2"),
            (("--since", "1h"), "at-work nightly-1 nightly-2 stopped used"),
            (("--since", "2999-01-01"), ""),
            (("--name", "weekly-*"), ""),
        ],
    )
    def test_only_those_that_fulfil_all_conditions_are_listed(self, partwise, words, names) -> None:
        code, out, _ = partwise("list", *words, "--json")
        assert code == 0
        assert sorted(json.loads(line)["run_id"] for line in out.splitlines()) == names.split()
        if not names:
            assert "None of the 5 runs in " in partwise("list", *words)[1]

    def test_each_status_of_partitions_that_there_is_has_a_column(self, partwise) -> None:
        head, *rows = partwise("list")[1].splitlines()
        counts = "PARTITIONS  DONE  SKIPPED  FAILED  INTERNAL ERROR  CANCELLED  BEGAN (UTC)"
        assert re.sub(" +", " ", head).endswith(re.sub(" +", " ", counts))
        found = {row.split()[0]: row.split()[3:9] for row in rows}
        assert found["used"] == ["2", "1", "0", "0", "1", "0"]
        assert found["stopped"] == ["1", "0", "0", "0", "0", "1"]
        head, _ = partwise("list", "--name", "nightly-1")[1].splitlines()
        assert "CANCELLED" not in head
        assert "INTERNAL" not in head

    def test_a_moment_that_is_none_is_refused(self, partwise) -> None:
        code, _, err = partwise("list", "--since", "yesterday")
        assert code == 2
        assert "--since 'yesterday' is not a moment: write 2026-11-20" in err
        soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        assert partwise("list", "--since", soon, "--json")[1] == ""
        assert partwise("list", "--since", "99999999w", "--json")[1] != ""

    def test_what_lies_beyond_the_limit_is_counted(self, partwise) -> None:
        assert partwise("list", "--limit", "2")[1].splitlines()[-1] == "and 3 older (--limit)"
        assert partwise("list", "--limit", "0")[0] == 2


class Logged(RunMaker):
    """Keeps a log in place of a note."""

    def log(self, *partitions: tuple[str, str, str]) -> None:
        """Commit partitions: their keys, statuses and logs; "" for none."""
        keys = pa.table({"key": [key for key, _, _ in partitions]})
        token = execution_token(self.claim.generation, secrets.token_hex(4))
        bundle = BundleWriter(f"bundles/{segment_file(0, token, 1, 'zip')}")
        rows = []
        for name, (_, status, text) in zip(
            partition_ids(keys, self.columns), partitions, strict=True
        ):
            row = LedgerRow(partition_id=name, shard=0, generation=1, status=status, rows=1)
            if text:
                log = bundle.add(name, LOG_FILENAME, text.encode(), "")
                row = replace(row, artifacts=(log,))
            rows.append(row)
        self._create(bundle.path, bundle.close())
        ledger = write_table(segment_table(keys, rows))
        self._create(f"ledger/{segment_file(0, token, 1, 'parquet')}", ledger)


class TestLogs:
    @pytest.fixture(autouse=True)
    def run(self, url) -> None:
        maker = Logged(Store.parse(url))
        maker.begin()
        long = "".join(f"line {i}\n" for i in range(100))
        failed = [(f"f{i:02d}", "FAILED", f"f{i:02d} broke\n") for i in range(11)]
        maker.log(("a", "DONE", "hello\x1b[2J\n"), ("b", "DONE", ""), ("c", "FAILED", long))
        maker.log(*failed)
        maker.end(14)

    def test_the_log_of_one_partition_is_printed_as_it_is(self, partwise) -> None:
        assert partwise("logs", "run", "a") == (0, "hello\u241b[2J\n", "")
        assert partwise("logs", "run", "b") == (0, "", "b: it wrote nothing\n")
        assert len(partwise("logs", "run", "c")[1].splitlines()) == 100

    def test_several_have_titles(self, partwise) -> None:
        out = partwise("logs", "run", "c", "b", "a", "c", "--lines", "2")[1]
        assert out.splitlines() == [
            "== c  FAILED, the last 2 lines of 100",
            "line 98",
            "line 99",
            "== b  DONE",
            "it wrote nothing",
            "== a  DONE",
            "hello\u241b[2J",
        ]

    def test_without_a_key_those_that_failed_are_printed_and_not_too_many(self, partwise) -> None:
        lines = partwise("logs", "run")[1].splitlines()
        titles = [line for line in lines if line.startswith("== ")]
        assert len(titles) == 10
        assert titles[:2] == ["== c  FAILED, the last 40 lines of 100", "== f00  FAILED"]
        assert lines[1] == "line 60"
        assert re.match(
            r"and 2 more that failed .* runs show run --failures --store \S+", lines[-1]
        )
        records = partwise("logs", "run", "--limit", "2", "--lines", "1", "--json")[1].splitlines()
        first, second = map(json.loads, records)
        assert (first["key.key"], first["log"], first["lines_left_out"]) == ("c", "line 99\n", 99)
        assert (second["key.key"], second["log"]) == ("f00", "f00 broke\n")

    def test_where_nothing_failed_it_says_so(self, partwise, url) -> None:
        make(url, "fine", *done(a=1.0))
        out = partwise("logs", "fine")[1]
        assert out == "Nothing failed in the run fine: name a key for what that partition wrote.\n"

    def test_a_key_that_is_not_there_is_answered_with_one_that_is(self, partwise) -> None:
        code, out, err = partwise("logs", "run", "a", "f0x")
        assert (code, out) == (2, "")
        assert "no partition 'f0x'. Did you mean 'f10'?" in err


class TestModel:
    def test_a_model_becomes_a_file_of_its_own(self, partwise, url, tmp_path) -> None:
        make(url, "run", *done(a=1.0, b=2.0), ("c", "FAILED", 1.0), kind="train", serde="json")
        target = tmp_path / "model.txt"
        code, out, _ = partwise("model", "run", "a", "--to", target)
        assert (code, out) == (0, f"{target}: 5 B, serde json\n")
        assert target.read_bytes() == b"a 1.0"
        code, _, err = partwise("model", "run", "b", "--to", target)
        assert (code, err) == (
            2,
            f"error: {target} exists: name another file, or have it replaced (--force).\n",
        )
        assert target.read_bytes() == b"a 1.0"
        assert partwise("model", "run", "b", "--to", target, "--force")[0] == 0
        assert target.read_bytes() == b"b 2.0"
        assert partwise("model", "run", "b", "--to", tmp_path)[0] == 0
        assert (tmp_path / "note.txt").read_bytes() == b"b 2.0"
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            "model.txt",
            "note.txt",
            "store",
        ]

    def test_what_has_no_model_is_refused(self, partwise, url, tmp_path) -> None:
        make(url, "run", *done(a=1.0, b=2.0), ("c", "FAILED", 1.0), kind="train", serde="json")
        for words, reason in (
            (("c", "--to", tmp_path / "x"), "has no model; its artifacts: none"),
            (("--to", tmp_path / "x"), "has 2 models: name the partition"),
            (("a", "--to", tmp_path / "no" / "x"), "There is no folder "),
            (("a", "--to", "/dev/null", "--force"), "is not an ordinary file"),
        ):
            code, _, err = partwise("model", "run", *words)
            assert code in (1, 2)
            assert reason in err
        assert not (tmp_path / "x").exists()


class TestExport:
    @pytest.fixture(autouse=True)
    def run(self, url) -> None:
        make(url, "run", *done(a=1.0, b=2.5), ("=c", "FAILED", 3.0))

    @pytest.mark.parametrize(
        ("what", "expected"),
        [
            ("metrics", [["=c", "value", "3"], ["a", "value", "1"], ["b", "value", "2.5"]]),
            ("predictions", [["a", "1"], ["b", "2.5"]]),
        ],
    )
    def test_tables_become_csv_and_parquet(self, partwise, tmp_path, what, expected) -> None:
        target = tmp_path / "x.csv"
        code, out, _ = partwise("export", "run", "--what", what, "--to", target)
        assert (code, out.startswith(f"{target}: {len(expected)} rows, ")) == (0, True)
        with target.open(newline="") as file:
            head, *rows = csv.reader(file)
        wanted = ["key", "metric", "value"] if what == "metrics" else ["key", "value"]
        picked = [[row[head.index(name)] for name in wanted] for row in rows]
        assert picked == expected
        assert partwise("export", "run", "--what", what, "--to", tmp_path / "x.parquet")[0] == 0
        assert pq.read_table(tmp_path / "x.parquet").num_rows == len(expected)

    def test_the_ledger_is_what_is_exported_by_default(self, partwise, tmp_path) -> None:
        assert partwise("export", "run", "--to", tmp_path / "x.parquet")[0] == 0
        rows = pq.read_table(tmp_path / "x.parquet").to_pylist()
        assert [(row["key"], row["status"]) for row in rows] == [
            ("=c", "FAILED"),
            ("a", "DONE"),
            ("b", "DONE"),
        ]

    def test_nothing_is_replaced_unless_asked_and_nothing_half_is_left(
        self, partwise, url, tmp_path
    ) -> None:
        (tmp_path / "x.csv").write_text("mine")
        make(url, "empty", ("a", "FAILED", 1.0))
        for words, reason in (
            (("run", "--to", tmp_path / "x.csv"), "exists: name another file"),
            (("run", "--to", tmp_path / "x.xlsx"), "ends in '.xlsx': name a file that ends in"),
            (("empty", "--what", "predictions", "--to", tmp_path / "y.csv"), "has no rows of"),
            (("run", "--to", tmp_path), "name a file that ends in"),
        ):
            code, _, err = partwise("export", *words)
            assert (code, reason in err) == (2, True), err
        assert (tmp_path / "x.csv").read_text() == "mine"
        assert partwise("export", "run", "--to", tmp_path / "x.csv", "--force")[0] == 0
        assert sorted(path.name for path in tmp_path.iterdir()) == ["store", "x.csv"]


class TestExportOfArtifacts:
    def test_they_are_files_by_their_keys(self, partwise, url, tmp_path) -> None:
        make(url, "made", *done(**{"a": 1.0, "b/c": 2.0, "d": 3.0}))
        to = tmp_path / "away"
        words = ("made", "--what", "artifacts", "--to", to)
        code, out, _ = partwise("export", *words, "--key", "b/c", "--key", "a")
        assert (code, out) == (0, f"{to}: 2 files of 2 partitions, 12 B\n")
        assert sorted(path.name.partition("-")[0] for path in to.iterdir()) == ["a", "b"]
        assert partwise("export", *words, "--pattern", "*.txt")[0] == 0
        assert (to / "d" / "note.txt").read_text() == "d 3.0"

    def test_what_cannot_be_is_said(self, partwise, url, tmp_path) -> None:
        make(url, "made", *done(store=1.0))
        for words, reason in (
            (
                ("--what", "artifacts", "--key", "stoer"),
                "no partition 'stoer'. Did you mean 'store'?",
            ),
            (("--what", "artifacts", "--pattern", "x"), "No artifact is named like 'x'"),
            (("--pattern", "x"), "--key and --pattern are for artifacts, not for ledger"),
        ):
            code, _, err = partwise("export", "made", "--to", tmp_path / "away.csv", *words)
            assert (code, reason in err) == (2, True), err
        assert not (tmp_path / "away.csv").exists()


def test_who_looks_for_predictions_is_led_to_their_command(capsys) -> None:
    for words, expected in (
        (["infer", "--help"], "runs export writes the predictions to a file"),
        (["--help"], "write its predictions to a file"),
        (
            ["runs", "--help"],
            "Write the ledger, metrics or predictions to a file, artifacts to many.",
        ),
    ):
        assert main(words) == 0
        assert expected in " ".join(capsys.readouterr().out.replace("│", " ").split())


class TestCompare:
    def test_better_and_worse_go_by_the_direction_of_the_metric(self, partwise, url) -> None:
        make(url, "one", *done(a=1.0, b=2.0, c=3.0, only_one=1.0), metric="holdout_rmse")
        make(url, "two", *done(a=0.5, b=2.0, c=4.0), ("x", "FAILED", 1.0), metric="holdout_rmse")
        lines = partwise("compare", "one", "two")[1].splitlines()
        assert lines[0].split() == ["A", "one", "SUCCESS", "4", "DONE"]
        assert [line.strip() for line in lines[2:5]] == [
            "partitions  3 in both",
            "1 in A alone: only_one",
            "1 in B alone: x",
        ]
        assert lines[-1].split() == [
            *("holdout_rmse", "3", "2", "2", "0", "1", "1", "1", "lower", "is", "better")
        ]
        record = json.loads(partwise("compare", "one", "two", "--json")[1])
        (metric,) = record["metrics"]
        assert (metric["better"], metric["improved"], metric["worsened"]) == ("lower", 1, 1)
        assert record["only_before"] == ["only_one"]
        backwards = json.loads(partwise("compare", "two", "one", "--json")[1])["metrics"][0]
        assert (backwards["lower"], backwards["higher"]) == (metric["higher"], metric["lower"])

    def test_a_page_has_a_picture_of_each_metric(self, partwise, url, tmp_path) -> None:
        values = {"<b>a": 1.0, "b": 2.0, "c": 3.0}
        make(url, "one", *done(**values, only=1.0), metric="holdout_rmse")
        make(url, "two", *done(**{**values, "<b>a": 0.5, "c": 4.0}), metric="holdout_rmse")
        page = tmp_path / "page.html"
        code, out, _ = partwise("compare", "one", "two", "--to", page)
        assert (code, out.splitlines()[-1]) == (0, f"page: {page}")
        text = page.read_text()
        assert text.count("<circle") == 3
        assert "B is better for 1, worse for 1, equal for 1." in text
        assert "<title>&lt;b&gt;a: A 1, B 0.5</title>" in text
        assert "<h3>Better by most: B</h3>" in text
        assert not re.search("<script|https?:|<b>a", text)
        for words, reason in (
            (("--to", page), "exists"),
            (("--to", tmp_path / "x.pdf"), "ends in .html"),
            (("--json", "--open"), "without it"),
        ):
            code, _, err = partwise("compare", "one", "two", *words)
            assert (code, reason in err) == (2, True), err
        assert partwise("compare", "one", "two", "--to", page, "--force")[0] == 0

    def test_of_other_metrics_nothing_is_called_better(self, partwise, url) -> None:
        make(url, "one", *done(a=1.0, b=2.0))
        make(url, "two", *done(a=2.0), ("b", "FAILED", 3.0))
        out = partwise("compare", "one", "two")[1]
        assert "better" not in out.lower()
        assert "status      1 DONE in A, 1 FAILED in B" not in out
        assert "  status      1 DONE in A, FAILED in B" in out.splitlines()
        assert out.splitlines()[-1].split() == ["value", "2", "1.5", "2.5", "1", "0", "2", "0"]

    def test_runs_without_a_common_metric_or_of_other_keys(self, partwise, url) -> None:
        make(url, "one", *done(a=1.0))
        make(url, "two", *done(b=1.0), metric="auc")
        out = partwise("compare", "one", "two")[1]
        assert out.splitlines()[-1] == "No metric has values in both."
        assert "metrics auc" in out
        code, _, err = partwise("compare", "one", "tow")
        assert (code, "two" in err) == (2, True)
