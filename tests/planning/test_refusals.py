"""A call that is checked at once is checked with the keys and values with which it is run."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from partwise.calls.call import Call
from partwise.calls.exports import ExportCall
from partwise.calls.partitions import InferCall, TrainCall
from partwise.calls.pipeline import PipelineCall
from partwise.engine.driver.params import given_params
from partwise.errors import ExportRefusedError, KeyClassError, ModelNotFoundError, PartwiseError
from partwise.models.export_options import ExportOptions
from partwise.models.serdes import PickleSerde
from partwise.planning import models as planned
from partwise.planning import refusals
from partwise.planning.exports import prepare_export
from partwise.planning.partitions import prepare_inference, prepare_training
from partwise.planning.refusals import check_call, check_functions
from partwise.runs.claim import Identity
from partwise.runs.run import Run
from partwise.runs.stored_models import MODELS, ModelSet
from partwise.sources.opening import open_source
from partwise.tables.keys.partition_keys import KeyClass, KeyColumn
from tests.exports.ridge_exporter import RidgeExporter
from tests.run_maker import RunMaker

CODES, INTEGERS, DOUBLES, WORDS = "01,02", "1,2", "1.5,2", "a,2"
TEXTS = (CODES, INTEGERS, DOUBLES, WORDS)
CLASSES = (None, KeyClass.STRING, KeyClass.INTEGER, KeyClass.FLOAT)


def fit(data, context):
    return None


def csv_of(folder, texts, name="a.csv"):
    (folder / name).write_text("key,x\n" + "".join(f"{text},1\n" for text in texts.split(",")))
    return str(folder / name)


def begin(make_run: RunMaker, run_id: str, key_class: KeyClass) -> Run:
    """Begin a training run with keys of a class."""
    columns = (KeyColumn(name="key", key_class=key_class),)
    make_run.identity = Identity(run_id=run_id, kind="train", key_columns=columns)
    make_run.begin()
    make_run.leave()
    return make_run.open()


def called(
    kind: type[Call], make_run: RunMaker, data: Any, **others: Any
) -> type[Exception] | None:
    """What a call is refused with."""
    given = {"run_id": "next", "on_existing_artifacts": "resume", "store": make_run.store.url}
    try:
        check_call(kind(data, "key", **given, **others))
    except PartwiseError as error:
        return type(error)
    return None


@pytest.mark.parametrize(("texts", "earlier"), [*product(TEXTS, CLASSES)])
def test_a_run_that_goes_on_is_checked_with_its_keys(
    texts, earlier, tmp_path, make_run: RunMaker, monkeypatch
):
    path, seen = csv_of(tmp_path, texts), []
    keys = [] if earlier is None else begin(make_run, "next", earlier).key_columns
    call = TrainCall(path, "key", fit, run_id="next")
    plan = prepare_training(call, open_source(path), earlier_keys=keys)

    def see(_trainer, schema, _names, **_options):
        seen.append(schema.field("key").type)

    monkeypatch.setattr(refusals, "checked_trainer", see)
    called(TrainCall, make_run, path, trainer=fit)
    assert seen == [plan.source.schema.field("key").type]


@pytest.mark.parametrize(("texts", "trained"), [*product(TEXTS, CLASSES[1:])])
@pytest.mark.parametrize("null_words", [[], ["a"]])
def test_an_inference_is_checked_with_keys_and_values_of_its_training(
    texts, trained, null_words, tmp_path, make_run: RunMaker, monkeypatch
):
    path = csv_of(tmp_path, texts)
    run = begin(make_run, "trained", trained)
    models = ModelSet(
        name="run://trained", key_columns=run.key_columns, models=MODELS.empty_table()
    )
    monkeypatch.setattr(planned, "recipe_of", lambda _run: {"csv": {"null_words": null_words}})
    monkeypatch.setattr(planned, "open_models", lambda *_arguments: models)
    monkeypatch.setattr(planned, "check_has_models", lambda *_arguments, **_options: None)
    call = InferCall(path, "key", "trained", predict, run_id="infer")
    used = planned.models_of_call(call, make_run.store)
    refused: type[Exception] | None = None
    try:
        prepare_inference(call, open_source(path), used)
    except KeyClassError as error:
        refused = type(error)
    found = called(InferCall, make_run, path, training_run_id="trained")
    assert found is refused


def predict(data, model, context):
    return None


@pytest.mark.parametrize(
    ("texts", "earlier", "later", "refused"),
    [
        (CODES, None, INTEGERS, None),
        (INTEGERS, None, CODES, None),
        (INTEGERS, None, WORDS, KeyClassError),
        (INTEGERS, KeyClass.STRING, WORDS, None),
        (CODES, KeyClass.INTEGER, WORDS, KeyClassError),
        (DOUBLES, None, INTEGERS, None),
        (CODES, None, "", None),
    ],
)
def test_a_pipeline_is_checked_with_the_keys_that_it_will_have_trained(
    texts, earlier, later, refused, tmp_path, make_run: RunMaker
):
    used = later and csv_of(tmp_path, later, "later.csv")
    path = csv_of(tmp_path, texts)
    if earlier:
        begin(make_run, "next-train", earlier)
    found = called(PipelineCall, make_run, path, trainer=fit, inference_data=used)
    assert found is refused


def test_models_of_codes_are_exported_and_have_params_by_them(tmp_path, make_run: RunMaker):
    path = csv_of(tmp_path, INTEGERS)
    run = begin(make_run, "trained", KeyClass.STRING)
    with pytest.raises(ModelNotFoundError):
        prepare_export(ExportCall("trained", serde=PickleSerde()), open_source(path), run)
    assert given_params(path, run.key_columns)["key"].to_pylist() == ["1", "2"]


class WithoutOpsets(RidgeExporter):
    def check(self, options: ExportOptions) -> None:
        if options.opset is not None:
            raise ExportRefusedError("It has one opset alone.")


def test_an_exporter_of_ones_own_refuses_options_before_any_work():
    given = {"exporter": WithoutOpsets(), "options": ExportOptions(opset=18)}
    for call in (
        ExportCall("trained", **given),
        PipelineCall("rows.parquet", "key", fit, run_id="r", **given),
    ):
        with pytest.raises(ExportRefusedError, match="one opset alone"):
            check_functions(call)
        check_functions(replace(call, options=ExportOptions()))
