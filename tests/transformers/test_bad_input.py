"""Bad input: one line that says what is wrong, and nothing left behind."""

import gc
import json
import pickle
import re
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from partwise.errors import (
    CheckpointError,
    ExportRefusedError,
    InputError,
    OpsetError,
    PartwiseError,
    StoreError,
    UnknownFeatureError,
    UnknownModelTypeError,
)
from partwise.exports.proof.verdict import Finding, Verdict
from partwise.transformers.check import check_export
from partwise.transformers.checkpoint_export import export_checkpoint
from partwise.transformers.collection import read_exports, tabulate
from partwise.transformers.export import TransformersMismatchError, export, place, writing
from partwise.transformers.families import TextOnnxConfig
from partwise.transformers.feature_choice import config_for
from partwise.transformers.features import TOKENS
from partwise.transformers.options import TransformersOptions
from partwise.transformers.report import ExportReport
from tests.transformers.tiny_checkpoints import save_checkpoint, save_tokenizer
from tests.transformers.tiny_models import tiny_model

CLASSIFIER = "sequence-classification"


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("bad-input") / "bert"
    save_checkpoint(folder, "bert", CLASSIFIER)
    save_tokenizer(folder)
    return folder


def refused(
    folder: Path, kind: type[PartwiseError], feature: str = CLASSIFIER, **options: object
) -> str:
    """Return what an export that is refused says, once it is known to have left nothing."""
    output = folder.parent / "made" / "onnx"
    before = sorted(folder.parent.iterdir())
    with pytest.raises(kind) as caught:
        export_checkpoint(str(folder), feature, output, TransformersOptions(**options))
    assert sorted(folder.parent.iterdir()) == before
    told = str(caught.value)
    assert "\n" not in told
    assert told.endswith(".")
    return told


def without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def with_weights_cut_off(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:40_000])


def with_weights_that_are_none(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"<html>404</html>")


def with_empty_weights(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"")


def with_torn_bin(folder: Path) -> None:
    without_weights(folder)
    (folder / "pytorch_model.bin").write_bytes(b"PK\x03\x04 no more")


def without_one_part(folder: Path) -> None:
    without_weights(folder)
    index = {"weight_map": {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model-1-of-2.safetensors").touch()


def with_a_broken_index(folder: Path) -> None:
    without_weights(folder)
    (folder / "model.safetensors.index.json").write_text("[]")


def with_tensorflow_weights(folder: Path) -> None:
    without_weights(folder)
    (folder / "tf_model.h5").touch()


def with_flax_weights(folder: Path) -> None:
    without_weights(folder)
    (folder / "flax_model.msgpack").touch()


def without_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def of_an_adapter(folder: Path) -> None:
    without_config(folder)
    (folder / "adapter_config.json").write_text("{}")


def with_a_broken_config(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "bert",')


def with_a_deep_config(folder: Path) -> None:
    (folder / "config.json").write_text("[" * 200_000)


def with_a_part_of_a_long_name(folder: Path) -> None:
    without_weights(folder)
    index = {"weight_map": {"a": 300 * "a"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def with_a_deep_index(folder: Path) -> None:
    without_weights(folder)
    (folder / "model.safetensors.index.json").write_text("[" * 200_000)


def with_a_config_of_nothing(folder: Path) -> None:
    (folder / "config.json").write_text("{}")


def with_an_impossible_config(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_attention_heads": 5}))


def gone(folder: Path) -> None:
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (gone, "There is no directory"),
        (without_config, "has no config.json, so it holds no model"),
        (of_an_adapter, "It is an adapter: merge it into its base model"),
        (with_a_broken_config, r"config\.json is broken: JSONDecodeError"),
        (with_a_deep_config, r"config\.json is broken: RecursionError"),
        (with_a_part_of_a_long_name, r"has 0 of the 1 files with weights .*'aaaaa"),
        (with_a_deep_index, r"index\.json is broken: RecursionError"),
        (with_a_config_of_nothing, "does not say which model_type"),
        (with_an_impossible_config, "cannot be read: .*attention heads"),
        (without_weights, "has no weights: expected is 'model.safetensors'"),
        (with_weights_cut_off, "cannot be read: SafetensorError: .*incomplete"),
        (with_weights_that_are_none, "cannot be read: SafetensorError: .*header"),
        (with_empty_weights, "cannot be read: SafetensorError: .*header"),
        (with_torn_bin, "cannot be read: "),
        (without_one_part, "has 1 of the 2 files with weights .*'model-2-of-2.*' is missing"),
        (with_a_broken_index, r"index\.json is broken"),
        (with_tensorflow_weights, "weights for TensorFlow only, .*from_tf=True"),
        (with_flax_weights, "weights for Flax only, .*from_flax=True"),
    ],
)
def test_a_directory_that_holds_no_whole_model_is_refused(
    bert, tmp_path, spoil: Callable[[Path], None], message
):
    folder = tmp_path / "model"
    shutil.copytree(bert, folder)
    spoil(folder)
    assert re.search(message, refused(folder, CheckpointError))


def test_a_file_is_no_directory(bert):
    path = bert / "model.safetensors"
    with pytest.raises(CheckpointError, match="is a file: name the directory"):
        export_checkpoint(str(path), CLASSIFIER, bert.parent / "made")


def test_an_unknown_feature_is_shown_all(bert):
    told = refused(bert, UnknownFeatureError, "sequence-clasification")
    assert "no feature 'sequence-clasification'" in told
    assert "'sequence-classification'" in told
    assert "'image-segmentation'" in told


def test_a_feature_that_an_architecture_has_not_is_shown_its_own(bert):
    told = refused(bert, UnknownFeatureError, "seq2seq-lm-with-past")
    assert "BERT (bert) has no feature 'seq2seq-lm-with-past'" in told
    assert "'question-answering'" in told
    assert "'image-segmentation'" not in told


def test_an_unknown_model_type_is_shown_all(bert, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(bert, folder)
    config = json.loads((bert / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "wavlm"}))
    told = refused(folder, UnknownModelTypeError)
    assert "'wavlm' is not in the table" in told
    assert "xlm-roberta-xl" in told


@pytest.mark.parametrize("opset", [9, 99])
def test_an_opset_that_will_not_do_is_refused(bert, opset):
    told = refused(bert, OpsetError, opset=opset)
    assert re.match(rf"Opset {opset} (is not sufficient|cannot be written) for bert", told)
    assert "from 11 to 25" in told


@contextmanager
def no_room_beyond(size_bytes: int) -> Iterator[None]:
    """Let no file grow beyond a size: the kernel then says EFBIG, to root as well."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{}, {"external_data": "always"}, {"opset": 14}, {"format": "torchscript"}, {"format": "pt2"}],
)
def test_a_model_that_finds_no_room_leaves_nothing(bert, options):
    """The configuration still fits, and the weights do not."""
    config_bytes = (bert / "tokenizer.json").stat().st_size
    with no_room_beyond(config_bytes + 20_000):
        told = refused(bert, StoreError, **options, preprocessor="none")
    assert "could not be written: File too large. Nothing was kept." in told
    gc.collect()  # a writer of torch's that has failed would end the process now


def test_a_tokenizer_that_finds_no_room_leaves_nothing(bert):
    with no_room_beyond(100):
        told = refused(bert, StoreError, preprocessor="none")
    assert "could not be written: File too large. Nothing was kept." in told


def write_bytes(path: Path) -> None:
    path.write_bytes(b"model")


def write_numbers(path: Path) -> None:
    """As large weights are written, by numpy, which then says nothing of the reason."""
    with path.open("wb") as file:
        np.zeros(100_000).tofile(file)


@pytest.mark.parametrize(
    ("write", "reason"),
    [(write_bytes, "No space left on device"), (write_numbers, "problem writing|requested and")],
)
def test_a_full_disk_is_told_in_one_line(tmp_path, write, reason):
    with (
        pytest.raises(StoreError, match=rf"onnx could not be written: .*({reason}).*was kept\.$"),
        writing(tmp_path / "onnx"),
    ):
        write(Path("/dev/full"))


def test_an_output_below_a_file_is_refused(bert, tmp_path):
    (tmp_path / "taken").touch()
    with pytest.raises(StoreError, match="taken is a file"):
        export_checkpoint(str(bert), CLASSIFIER, tmp_path / "taken" / "onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_another_checkpoint_is_not_written_over(bert, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(bert, other)
    (other / "vocab.txt").write_text("its own")
    before = {path.name: path.read_bytes() for path in other.iterdir()}
    with pytest.raises(InputError, match=r"holds another model than .* \(model\.safetensors\)"):
        export_checkpoint(str(bert), CLASSIFIER, other)
    assert {path.name: path.read_bytes() for path in other.iterdir()} == before
    # Its own folder is none of another model: what is wrong here is the feature.
    with pytest.raises(UnknownFeatureError, match="no feature 'fill'"):
        export_checkpoint(str(bert), "fill", bert.parent / "made" / ".." / "bert")


def test_the_name_of_a_file_says_its_format(tmp_path):
    neuron = TransformersOptions(format="neuron")
    with pytest.raises(InputError, match=r"end it in \.neuron\.pt, or name a folder"):
        place(tmp_path / "made.pt", neuron)
    with pytest.raises(InputError, match=r"end it in \.onnx, or name a folder"):
        place(tmp_path / "made.pt2", TransformersOptions())
    assert place(tmp_path / "a.neuron.pt", neuron) == (tmp_path, "a.neuron.pt")
    assert place(tmp_path / "v1.0", neuron) == (tmp_path / "v1.0", "model.neuron.pt")
    folder = tmp_path / "old.onnx"
    folder.mkdir()
    assert place(folder, TransformersOptions()) == (folder, "model.onnx")


def test_a_mismatch_reaches_another_process_with_its_report():
    made = {"model_type": "bert", "feature": "default", "format": "onnx", "opset": 18}
    report = ExportReport(**made, seconds=1, versions={}, files=())
    finding = Finding(check="values", message="It differs.")
    error = TransformersMismatchError(report, Verdict(findings=(finding,), metrics={"rows": 2.0}))
    error.add_note("partition a")
    found = pickle.loads(pickle.dumps(error))
    assert (type(found), str(found), found.check) == (type(error), "It differs.", "values")
    assert (found.metrics, found.report) == ({"rows": 2.0}, report)
    assert found.__notes__ == ["partition a"]


def test_a_model_that_is_not_on_the_cpu_is_refused(tmp_path):
    model = tiny_model("bert", "default", one_layer=True).to("meta")
    with pytest.raises(ExportRefusedError, match=r"has weights on meta: export model\.cpu\(\)"):
        export(model, config_for(model.config, "default"), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"outputs": {"hidden": TOKENS}}, "gives no 'hidden': its outputs are 'last_hidden_state'"),
        (
            {"inputs": {"attention_mask": TOKENS}},
            "does not run as Wrong says of 'default': You",
        ),
    ],
)
def test_a_configuration_that_is_not_the_models_is_refused(wrong, told, tmp_path):
    Wrong = type("Wrong", (TextOnnxConfig,), wrong)
    model = tiny_model("distilbert", "default", one_layer=True)
    with pytest.raises(ExportRefusedError, match=told):
        export(model, Wrong(model.config), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_a_path_or_text(bert, tmp_path):
    for name, output in ((bert, str(tmp_path / "out")), (str(bert), tmp_path / "out")):
        with pytest.raises(UnknownFeatureError, match="no feature 'fill'"):
            export_checkpoint(name, "fill", output)


def test_a_file_that_no_run_can_keep_is_refused_before_the_export(bert, tmp_path):
    shutil.copytree(bert, tmp_path / "bert")
    exports = read_exports([(str(tmp_path / "bert"), CLASSIFIER)])
    assert tabulate(exports).num_rows == 1
    (tmp_path / "bert" / "größe.model").touch()
    with pytest.raises(InputError, match=r"cannot be exported: The artifact name 'größe\.model'"):
        tabulate(exports)


def test_names_that_are_too_long_for_any_file_are_refused_in_a_sentence(bert):
    long = Path(300 * "a")
    with pytest.raises(CheckpointError, match=r"There is no directory \./aaa"):
        export_checkpoint(f"./{long}", CLASSIFIER, "out")
    with pytest.raises(InputError, match="There is no file aaa"):
        check_export(long.with_suffix(".onnx"), str(bert))
    with pytest.raises(StoreError, match="could not be written: File name too long"):
        export_checkpoint(str(bert), CLASSIFIER, long / "out")


def test_a_folder_in_the_place_of_a_file_is_told(tmp_path):
    (tmp_path / "model.onnx").mkdir()
    with (
        pytest.raises(StoreError, match="could not be written: Is a directory"),
        writing(tmp_path / "model.onnx"),
    ):
        (tmp_path / "model.onnx").unlink()
