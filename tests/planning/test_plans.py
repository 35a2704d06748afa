"""What a flow decides before it touches a row: plans and refusals, without Prefect or Dask."""

import subprocess
import sys
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partwise.calls.exports import ExportCall, TransformersCall, ValidateCall
from partwise.calls.partitions import InferCall, MapCall, PortfolioCall, TrainCall
from partwise.engine.driver.plan import Plan
from partwise.engine.fallbacks import Constant
from partwise.engine.options import ExecutionOptions
from partwise.environments.resolved_environment import ResolvedEnvironment
from partwise.errors import (
    ColumnError,
    FunctionError,
    InputError,
    KeyClassError,
    ModelNotFoundError,
    RunExistsError,
    RunIdError,
    SerdeError,
)
from partwise.flows.running.earlier_call import earlier_keys
from partwise.models.serdes import PickleSerde
from partwise.planning import partitions
from partwise.planning.exports import (
    check_coverage,
    check_exports,
    prepare_collection,
    prepare_export,
    prepare_validation,
)
from partwise.planning.models import UsedModels, models_of_call, open_models
from partwise.planning.partitions import prepare_inference, prepare_mapping, prepare_training
from partwise.planning.portfolio import settings_to_score
from partwise.planning.previous_runs import with_previous_models
from partwise.publishing.dataset_output import DatasetOutput
from partwise.publishing.sql_output import Table
from partwise.runs.claim import Claim
from partwise.runs.removal import remove_run
from partwise.runs.run import Run
from partwise.runs.stored_models import MODELS, ModelSet
from partwise.shuffle.plan import shard_rows
from partwise.sources.opening import open_source
from partwise.store.store import Store
from partwise.tables.keys.partition_keys import KeyClass, KeyColumn, key_columns
from partwise.trainers import Best, LightGBMTrainer, Linear, Mean, SeasonalNaive, Tuned
from partwise.transformers.collection import TransformersExport
from partwise.tuning.space import loguniform
from tests.flows.inference_functions import fit_mean as fit
from tests.planning.own_trainers import Reads, WithLibraries
from tests.run_maker import RunMaker

ROWS = pa.table({"key": ["a", "a", "b"], "day": [1, 2, 3], "sales": [1.0, 2.0, 3.0]})


def training(trainer=fit, partition_by="key", source=None, **changes) -> Plan:
    call = TrainCall(ROWS, partition_by, trainer, **{"run_id": "run", **changes})
    return prepare_training(call, open_source(ROWS) if source is None else source)


def inference(run: Run, partition_by="key", rows=ROWS, **changes) -> Plan:
    call = InferCall(rows, partition_by, run.run_id, run_id="run", **changes)
    return prepare_inference(call, open_source(rows), models_of_call(call, run.store))


@pytest.mark.parametrize("seed", [2**40 + 5, -(2**31) + 5])
def test_a_portfolio_draws_its_settings_by_any_seed(seed):
    trainer, space = LightGBMTrainer(label="sales"), {"learning_rate": loguniform(0.1, 0.3)}
    scored, plain = (
        settings_to_score(PortfolioCall(ROWS, "key", trainer, space, trials=4, seed=each))
        for each in (seed, 5)
    )
    assert scored.settings == plain.settings


def test_a_candidate_without_its_library_is_refused(monkeypatch):
    """It would lose on each partition, and nobody would hear of it."""
    monkeypatch.setattr(partitions, "find_spec", lambda name: None if name == "sklearn" else name)
    trainer = Best([LightGBMTrainer(label="sales"), Linear()])
    with pytest.raises(InputError, match=r"needs sklearn, .* install partwise\[sklearn\]"):
        training(trainer)
    environment = ResolvedEnvironment(name="mine", python="3.11", platform="linux")
    call = TrainCall(ROWS, "key", trainer, run_id="run")
    assert prepare_training(call, open_source(ROWS), packages=environment)


SEASONAL = SeasonalNaive(time="day", season=7)


@pytest.mark.parametrize(
    ("candidates", "params", "message"),
    [
        (
            [Mean(), SEASONAL],
            {"a": {"num_leaves": 7}},
            "candidate 'seasonal_naive' cannot take 'num_leaves' of params: SeasonalNaive has no",
        ),
        ([Mean(), SEASONAL], {"a": {"mean": {"season": 7}}}, "Mean has no parameters, and is"),
        ([Mean(), SEASONAL], {"a": {"seasonal_naive": 7}}, "7 for the candidate 'seasonal_naive'"),
        ([Mean(), SEASONAL], pa.table({"key": ["a"], "saeson": [7]}), "'saeson'"),
        ([Tuned(SEASONAL, {"season": 2}), Mean()], {"a": {"x": 1}}, "'tuned_seasonal_naive'"),
        ([Mean(), SEASONAL, fit], {"a": {"season": 5, "fit_mean": {"x": 1}}}, ""),
        ([Mean(), SEASONAL], pa.table({"key": ["a"], "season": [7], "x": [None]}), ""),
    ],
)
def test_what_a_candidate_does_not_know_is_refused_before_any_work(candidates, params, message):
    trainer = Best(candidates, label="sales")
    if not message:
        assert training(trainer, params=params)
        return
    with pytest.raises(InputError, match=message):
        training(trainer, params=params)


@pytest.mark.parametrize("libraries", [7, "sales", ("nowhere.at.all",), {"books": ["a.b"]}])
def test_what_a_user_calls_libraries_is_not_looked_at(libraries):
    own = WithLibraries(libraries)
    tuned = Tuned(own, {"a": 1}, label="sales")
    for trainer in (own, tuned, Best([own, Mean(label="sales"), tuned])):
        plan = training(trainer)
        assert not {"library nowhere", "library sales"} & set(plan.intent.code_parts)


def test_a_module_within_a_library_is_looked_for_by_the_library():
    class Nested(Mean):
        @property
        def libraries(self):
            return ("nowhere.at.all",)

    with pytest.raises(InputError, match=r"The trainer needs nowhere.at.all, which is not inst"):
        training(Nested(label="sales"))


def test_nothing_of_prefect_is_needed():
    code = (
        "import sys\n"
        "import partwise.planning.partitions, partwise.planning.exports\n"
        "heavy = {'prefect', 'partwise.blocks', 'torch', 'lightgbm', 'xgboost', 'onnx'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


class TestTraining:
    def test_a_plan_says_all_that_the_execution_needs(self):
        plan = training(seed=3, null_keys="drop", on_existing_artifacts="resume")
        assert (plan.identity.kind, plan.identity.run_id) == ("train", "run")
        assert [column.name for column in plan.identity.key_columns] == ["key"]
        assert (plan.seed, plan.null_keys, plan.on_existing) == (3, "drop", "resume")
        assert plan.function is fit
        assert plan.intent.call_obstacle, "rows in memory cannot be read again elsewhere"

    @pytest.mark.parametrize(
        ("partition_by", "trainer", "serde", "error", "words"),
        [
            ("nowhere", fit, None, ColumnError, "nowhere"),
            ([], fit, None, InputError, "partition_by"),
            ("key", "no.such:function", None, FunctionError, "no.such"),
            ("key", "partwise.errors:PartwiseError", None, FunctionError, "is a type"),
            ("key", fit, "parchment", SerdeError, "parchment"),
            ("key", LightGBMTrainer(label="nothing"), None, ColumnError, "nothing"),
        ],
    )
    def test_what_cannot_work_is_refused_before_a_row_is_read(
        self, partition_by, trainer, serde, error, words
    ):
        with pytest.raises(error, match=words):
            training(trainer, partition_by, serde=serde)

    def test_equal_requests_have_equal_intents_and_settings_change_them(self):
        before, again = training().intent, training().intent
        assert before.code_fingerprint == again.code_fingerprint
        assert before.inputs_fingerprint == again.inputs_fingerprint
        assert training(seed=1).intent.code_fingerprint != before.code_fingerprint
        assert training(null_keys="keep").intent.inputs_fingerprint != before.inputs_fingerprint
        faster = training(execution=ExecutionOptions(max_retries=5))
        assert faster.intent.code_fingerprint == before.code_fingerprint, "limits are not code"


class TestMapping:
    def test_the_function_is_resolved_and_the_output_written_down(self):
        call = MapCall(ROWS, ["key", "day"], fit, run_id="run")
        plan = prepare_mapping(call, open_source(ROWS), output=DatasetOutput("forecasts"))
        assert plan.identity.kind == "map"
        known = plan.intent.call_known
        assert known is not None
        assert known["arguments"]["output"] == "dataset://forecasts"
        assert known["arguments"]["partition_by"] == ["key", "day"]


class TestModels:
    @pytest.fixture
    def run(self, tmp_path) -> Run:
        return self.made(tmp_path)

    @pytest.fixture
    def with_models(self, tmp_path) -> Run:
        return self.made(tmp_path, "pickle")

    def made(self, tmp_path, serde: str = "", run_id: str = "trained", keys: str = "ab") -> Run:
        maker = RunMaker(Store.parse(tmp_path), run_id, "train", serde)
        maker.begin()
        maker.commit(*((key, "DONE" if key.islower() else "FAILED", 1.0) for key in keys))
        return maker.end(len(keys))

    def test_a_run_without_models_infers_and_exports_nothing(self, run):
        with pytest.raises(ModelNotFoundError, match=r"'trained' \(SUCCESS\) has no model yet"):
            inference(run)
        with pytest.raises(ModelNotFoundError, match=r"'trained' \(SUCCESS\) has no model yet"):
            prepare_export(ExportCall("trained", run_id="run"), open_source(ROWS), run)

    def test_inference_wants_the_keys_of_the_training_run(self, with_models):
        with pytest.raises(InputError, match=r"partition_by is \['day'\].*by \['key'\]"):
            inference(with_models, "day", serde="pickle")
        numbers = ROWS.set_column(0, "key", pa.array([1, 2, 3]))
        with pytest.raises(KeyClassError, match="the run 'trained'"):
            inference(with_models, rows=numbers, serde="pickle")

    def test_columns_to_keep_have_to_be_there(self, with_models):
        with pytest.raises(ColumnError, match=r"keep_columns names \['price'\]"):
            inference(with_models, keep_columns=["day", "price"], serde="pickle")

    def test_columns_to_keep_have_to_have_a_place_in_the_output(self, with_models, tmp_path):
        durations = ROWS.append_column("time", pa.array([1, 2, 3], pa.duration("us")))
        table = Table("t", str(tmp_path / "t.db"))
        used = models_of_call(InferCall(ROWS, "key", "trained", serde="pickle"), with_models.store)

        def plan(kept: list[str]) -> Plan:
            call = InferCall(durations, "key", "trained", keep_columns=kept, run_id="run")
            return prepare_inference(call, open_source(durations), used, output=table)

        plan(["key", "day"])
        with pytest.raises(InputError, match="'time' of type duration"):
            plan(["day", "time"])

    def test_what_answers_for_every_partition_stands_last(self, with_models):
        with pytest.raises(InputError, match="before its end"):
            inference(with_models, serde="pickle", fallback=[0, "run://trained"])

    @pytest.mark.parametrize("value", [2**64, -(2**63) - 1, str(2**70), Constant(2**70)])
    def test_what_answers_is_a_number_that_a_column_holds(self, with_models, value):
        with pytest.raises(InputError, match=r"fallback is a whole number of \d+ bits"):
            inference(with_models, serde="pickle", fallback=["run://trained", value])
        inference(with_models, serde="pickle", fallback=[2**64 - 1])

    def asked(self, run: Run, **changes) -> tuple[dict[str, list[str]], str]:
        """The keys that each run is asked for, and what is said."""
        given = {"on_missing_model": "previous", "serde": "pickle", "run_id": "used"}
        call = InferCall(ROWS, "key", run.run_id, **given | changes)
        used, sentence = with_previous_models(models_of_call(call, run.store), call, run.store)
        keys = {models.name: models.models["owner"].to_pylist() for models in used.sets}
        return {name: [owner[0] for owner in owners] for name, owners in keys.items()}, sentence

    def test_runs_before_are_asked_for_the_keys_without_a_model(self, tmp_path):
        for run_id, keys in (("n-1", "abcd"), ("n-2", "abC"), ("n-3", "abc"), ("n-bad", "abxyz")):
            self.made(tmp_path, "pickle", run_id, keys)
        run = self.made(tmp_path, "pickle", "n-4", "aBCe")
        self.made(tmp_path, "pickle", "n-5", "abcdef")
        found, sentence = self.asked(run)
        assert found == {"run://n-4": ["a", "e"], "run://n-3": ["b", "c"], "run://n-1": ["d"]}
        assert sentence.endswith("have those of run://n-3 (2 keys), run://n-1 (1 key).")
        # What is asked next stands after them, and none is asked twice.
        found, _ = self.asked(run, fallback=["run://n-1", "run://n-bad"])
        assert [*found] == ["run://n-4", "run://n-3", "run://n-1", "run://n-bad"]
        first = Run.open("n-1", run.store)
        assert self.asked(first) == (
            {"run://n-1": ["a", "b", "c", "d"]},
            "No earlier run has a model of a key that the run 'n-1' has none of.",
        )

    def used(self, run: Run, *names: str) -> None:
        """Make the run that is overwritten, which asked these."""
        maker = RunMaker(run.store, "used", "infer")
        models = tuple(f"run://{name}" for name in (run.run_id, *names))
        maker.identity = replace(maker.identity, models=models)
        maker.begin()
        maker.die()

    def test_an_overwrite_goes_on_where_the_missing_model_is_there_again(self, tmp_path):
        for run_id, keys in (("n-1", "abc"), ("n-2", "abc"), ("other", "ab"), ("n-3", "aBc")):
            run = self.made(tmp_path, "pickle", run_id, keys)
        self.used(run, "n-2", "other")
        given = {"on_existing_artifacts": "overwrite", "fallback": ["run://other"]}
        others = {"run://other": ["a", "b"]}
        asked = {"run://n-3": ["a", "c"], "run://n-2": ["b"]} | others
        assert self.asked(run, **given)[0] == asked
        run = self.made(tmp_path, "pickle", "n-3", "abc")
        found, sentence = self.asked(run, **given)
        assert [*found.items()] == [
            ("run://n-3", ["a", "b", "c"]),
            ("run://n-2", []),
            *others.items(),
        ]
        assert sentence == "No earlier run has a model of a key that the run 'n-3' has none of."
        # One that had no place is asked: it is another run, as which its claim refuses it.
        self.made(tmp_path, "pickle", "n-2", "abc")
        run = self.made(tmp_path, "pickle", "n-3", "aBc")
        self.made(tmp_path, "pickle", "n-2", "abc")
        assert [*self.asked(run, **given)[0]] == ["run://n-3", "run://n-1", "run://other"]

    def test_an_overwrite_loses_no_model_of_an_earlier_run_that_worked_later(self, tmp_path):
        """It is earlier by its ID alone then, and would be asked no more: that is refused."""
        for run_id, keys in (("n-1", "ab"), ("n-2", "a")):
            run = self.made(tmp_path, "pickle", run_id, keys)
        self.used(run, "n-1")
        self.made(tmp_path, "pickle", "n-1", "ab")
        found, _ = self.asked(run, on_existing_artifacts="overwrite")
        assert [*found] == ["run://n-2"], "as its claim refuses it"
        remove_run(Store.parse(tmp_path), "n-1")
        found, _ = self.asked(run, on_existing_artifacts="overwrite")
        assert found == {"run://n-2": ["a"], "run://n-1": []}

    @pytest.mark.parametrize("how", ["overwrite", "resume"])
    def test_an_earlier_run_that_is_a_fallback_is_asked_as_before(self, tmp_path, how):
        """Also for keys of the first, whose own models may be damaged."""
        for run_id in ("n-1", "n-2"):
            run = self.made(tmp_path, "pickle", run_id, "ab")
        self.used(run, "n-1")
        found, _ = self.asked(run, on_existing_artifacts=how, fallback=["run://n-1"])
        assert found == {"run://n-2": ["a", "b"], "run://n-1": ["a", "b"]}

    def test_a_new_run_asks_of_a_fallback_what_its_resume_will(self, tmp_path):
        for run_id, keys in (("n-1", "ab"), ("n-2", "aB")):
            run = self.made(tmp_path, "pickle", run_id, keys)
        given = {"fallback": ["run://n-1"]}
        found, _ = self.asked(run, **given)
        assert found == {"run://n-2": ["a"], "run://n-1": ["a", "b"]}
        self.used(run, "n-1")
        assert self.asked(run, **given, on_existing_artifacts="resume")[0] == found

    @pytest.mark.parametrize(
        "run_id", ["trained", "train-20261127-021500-9f3a", "train-20261127-021500-9f3a04c7"]
    )
    def test_an_id_that_tells_no_earlier_runs_is_refused(self, tmp_path, run_id):
        with pytest.raises(InputError, match=f"asks runs before '{run_id}'.* none can be known"):
            self.asked(self.made(tmp_path, "pickle", run_id))

    def test_a_fallback_has_some_of_the_keys(self, with_models):
        of_all = ModelSet(name="run://all", key_columns=(), models=MODELS.empty_table())
        keyed = open_models("trained", with_models.store, serde=PickleSerde())
        used = UsedModels(sets=(of_all, keyed), fallback=None, recipe=None, reader=None)
        with pytest.raises(InputError, match=r"the run 'trained' have the key columns \['key'\]"):
            used.check_keys(["day"], key_columns(ROWS.schema, ["day"]))

    def test_one_of_two_names_says_whose_models_are_used(self, with_models):
        with pytest.raises(InputError, match="training_run_id='trained' and models='run://b'"):
            inference(with_models, models="run://b")

    def test_only_runs_of_the_right_kind_will_do(self, tmp_path):
        maker = RunMaker(Store.parse(tmp_path), "mapped")
        maker.begin()
        maker.commit(("a", "DONE", 1.0))
        mapped = maker.end(1)
        with pytest.raises(InputError, match="'mapped' is of the kind 'map'"):
            inference(mapped)
        with pytest.raises(InputError, match="'mapped' is of the kind 'map'"):
            check_exports(mapped)

    def test_a_collection_is_neither_trained_nor_exports_of_what_was(self, local_store):
        maker = RunMaker(local_store, "hub", "export-transformers", "onnx")
        maker.begin()
        maker.commit(("a", "DONE", 1.0))
        hub = maker.end(1)
        with pytest.raises(InputError, match="'hub' is of the kind 'export-transformers'; train"):
            inference(hub)
        with pytest.raises(InputError, match="'hub' is one of export_transformers"):
            check_exports(hub)

    def test_validation_wants_something_published(self, run):
        call = ValidateCall("trained", run_id="run", serde=PickleSerde())
        with pytest.raises(ModelNotFoundError, match="has published nothing"):
            prepare_validation(call, open_source(ROWS), run, run)

    def test_a_model_without_rows_to_be_compared_on_is_named(self, tmp_path):
        source = open_source(ROWS)
        keys = training().identity.key_columns
        sharded = shard_rows(source, keys, 2, tmp_path)
        table = pa.Table.from_pylist([{"hash": 1, "owner": "nobody"}], MODELS)
        known = ModelSet(name="run://trained", key_columns=keys, models=table)
        with pytest.raises(InputError, match=r"1 of the 1 models of the run 'trained'.*nobody"):
            check_coverage(known, sharded)


def test_a_collection_can_be_repeated_although_its_rows_are_in_memory(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "model.safetensors").write_bytes(b"")
    export = TransformersExport(model=str(tmp_path), feature="default")
    plan = prepare_collection(TransformersCall([export], run_id="run"), [export])
    assert plan.identity.kind == "export-transformers"
    assert plan.intent.call is not None
    assert plan.intent.call_obstacle is None


class TestPlan:
    def claim(self, store: Store, plan: Plan) -> Claim:
        return Claim(store, plan.identity, "resume")

    def test_the_number_of_shards_is_the_callers_or_fits_the_slots(self, local_store):
        plan = training()
        with self.claim(local_store, plan) as claim:
            assert plan.choose_n_shards(claim, slots=4) == 32
            asked = replace(plan, options=ExecutionOptions(n_shards=65_536))
            assert asked.choose_n_shards(claim, slots=4) == 65_536

    def test_a_run_keeps_its_number_of_shards(self, local_store):
        plan = training()
        with self.claim(local_store, plan) as claim:
            claim.begin(n_shards=5, intent=plan.intent)
        other = replace(plan, options=ExecutionOptions(n_shards=6))
        with self.claim(local_store, plan) as claim:
            assert plan.choose_n_shards(claim, slots=4) == 5
            with pytest.raises(InputError, match="n_shards is 6, and the run 'run' needs 5"):
                other.choose_n_shards(claim, slots=4)

    def test_the_option_ends_where_shards_do(self):
        with pytest.raises(ValueError, match="less than or equal to 65536"):
            ExecutionOptions(n_shards=65_537)

    def test_a_dry_run_has_a_name_of_its_own_and_replaces_no_real_run(self, local_store):
        plan = training(execution=ExecutionOptions(sample=2))
        sample = plan.as_sample(local_store)
        assert sample.identity.run_id == "run-sample"
        assert sample.on_existing == "overwrite"
        again = replace(plan, identity=replace(plan.identity, run_id="run-sample"))
        assert again.as_sample(local_store).identity.run_id == "run-sample"
        assert training().as_sample(local_store).identity.run_id == "run"

        real = RunMaker(local_store, "run-sample", kind="train")
        real.begin()
        real.leave()
        with pytest.raises(RunExistsError, match="'run-sample', and there is a run of that name"):
            plan.as_sample(local_store)

    def test_the_name_of_a_dry_run_has_to_be_safe_too(self, local_store):
        plan = training(run_id="x" * 60, execution=ExecutionOptions(sample=2))
        with pytest.raises(RunIdError, match="-sample"):
            plan.as_sample(local_store)

    def test_a_trainer_gets_what_it_reads_and_nothing_else_is_read(self, tmp_path):
        path = tmp_path / "rows.parquet"
        wide = ROWS.append_column("note", pa.array(["damage"] * 3))
        pq.write_table(wide, path, use_dictionary=False, compression="none")
        path.write_bytes(path.read_bytes().replace(b"damage", b"\xff\xff\xff\xff\xff\xff"))
        trainer = LightGBMTrainer(label="sales", features=("day",))
        source = open_source(path)
        plan = training(trainer, source=source)
        assert plan.source.schema.names == ["key", "day", "sales"]
        assert plan.reads == {"day", "sales"}
        assert plan.source.description().fingerprint == source.description().fingerprint
        assert pa.Table.from_batches(list(plan.source.batches())) == ROWS
        whole = training(source=open_source(path))
        assert (whole.reads, whole.source.schema.names[-1]) == (None, "note")

    def test_columns_that_a_trainer_reads_have_to_be_there(self):
        with pytest.raises(ColumnError, match=r"reads \['absent'\], which the source does not"):
            training(Reads())

    def test_rows_are_shown_to_a_trainer_that_wants_to_see_them(self, tmp_path):
        empty = ROWS.set_column(2, "sales", pa.nulls(3, pa.float64()))
        trainer = LightGBMTrainer(label="sales")
        plan = training(trainer, source=open_source(empty))
        sharded = shard_rows(plan.source, plan.identity.key_columns, 2, tmp_path)
        with pytest.raises(ColumnError, match="sales"):
            plan.check_rows(sharded)


def test_a_run_that_goes_on_reads_csv_with_the_classes_of_its_keys(tmp_path):
    (tmp_path / "codes.csv").write_text("key,sales\n01,1\n1,2\n")
    for earlier, expected in (
        ((), "string"),
        ([KeyColumn(name="key", key_class=KeyClass.INTEGER)], "int64"),
    ):
        source = open_source(str(tmp_path / "codes.csv"))
        call = TrainCall(str(tmp_path / "codes.csv"), "key", fit, run_id="run")
        plan = prepare_training(call, source, earlier_keys=earlier)
        (key,) = plan.identity.key_columns
        assert (plan.source.schema.field("key").type, key.key_class) == (
            pa.type_for_alias(expected),
            KeyClass.INTEGER if earlier else KeyClass.STRING,
        )


def test_the_keys_of_a_run_are_found_where_it_is(make_run: RunMaker):
    call = MapCall(ROWS, "key", fit, store=make_run.store.url)
    absent = [replace(call, run_id=name) for name in ("run", "not a name")]
    assert [earlier_keys(each) for each in absent] == [(), ()]
    make_run.begin()
    call = replace(call, run_id=make_run.claim.identity.run_id)
    assert earlier_keys(call) == make_run.open().key_columns != ()
