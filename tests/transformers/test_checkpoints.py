"""Checkpoints: what is read from a directory, and what is refused because it would be noise."""

import errno
import fcntl
import json
import logging
import os
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub.utils import filter_repo_objects

from partwise.errors import CheckpointError, OpsetError, UnknownFeatureError
from partwise.transformers.checkpoint_files import find_checkpoint, served_files
from partwise.transformers.checkpoints import open_checkpoint
from partwise.transformers.export import _publish
from partwise.transformers.families import TypedTextOnnxConfig
from partwise.transformers.installed import TRANSFORMERS
from partwise.transformers.options import TransformersOptions
from partwise.transformers.quiet import quiet
from tests.lazily import Lazily
from tests.transformers.tiny_checkpoints import (
    save_checkpoint,
    save_image_processor,
    save_tokenizer,
)
from tests.transformers.tiny_models import TINY

torch, transformers = Lazily("torch"), Lazily("transformers")

OPTIONS = TransformersOptions()
NO_PREPROCESSOR = TransformersOptions(preprocessor="none")
CLASSIFIER = "sequence-classification"


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> Path:
    """A classifier of text with its tokenizer."""
    folder = tmp_path_factory.mktemp("checkpoints") / "bert"
    save_checkpoint(folder, "bert", CLASSIFIER)
    save_tokenizer(folder)
    return folder


def weights_of(folder: Path) -> "dict[str, torch.Tensor]":
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def copy_with(folder: Path, to: Path, layout: str) -> Path:
    """Copy a checkpoint, with its weights in another layout or precision."""
    shutil.copytree(folder, to)
    weights = weights_of(folder)
    (to / "model.safetensors").unlink()
    names = sorted(weights)
    parts = {"1": names[:10], "2": names[10:]}
    match layout:
        case "bin":
            torch.save(weights, to / "pytorch_model.bin")
        case "sharded bin":
            for part, held in parts.items():
                torch.save({name: weights[name] for name in held}, to / f"part-{part}.bin")
            index = {name: f"part-{part}.bin" for part, held in parts.items() for name in held}
            index = {"metadata": {}, "weight_map": index}
            (to / "pytorch_model.bin.index.json").write_text(json.dumps(index))
        case "sharded safetensors":
            with quiet():
                model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
                model.save_pretrained(to, max_shard_size="20KB")
            assert len(list(to.glob("model-*.safetensors"))) > 2
        case "bfloat16":
            with quiet():
                model = transformers.AutoModelForSequenceClassification.from_pretrained(
                    folder, dtype=torch.bfloat16
                )
                model.save_pretrained(to)
    return to


@pytest.mark.parametrize("layout", ["bin", "sharded bin", "sharded safetensors", "bfloat16"])
def test_weights_are_read_however_they_lie(bert, tmp_path, layout):
    folder = copy_with(bert, tmp_path / "copy", layout)
    model = open_checkpoint(str(folder), CLASSIFIER, NO_PREPROCESSOR).model
    exact = layout != "bfloat16"
    for name, expected in weights_of(bert).items():
        found = model.state_dict()[name]
        assert found.dtype == torch.float32, name
        torch.testing.assert_close(found, expected, rtol=0 if exact else 1e-2, atol=0)
    assert not model.training


def test_a_pickle_with_code_in_it_is_not_run(bert, tmp_path):
    class Dangerous:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    folder = tmp_path / "copy"
    shutil.copytree(bert, folder)
    (folder / "model.safetensors").unlink()
    torch.save({"x": Dangerous()}, folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="cannot be read"):
        open_checkpoint(str(folder), CLASSIFIER, NO_PREPROCESSOR)
    assert not (tmp_path / "ran").exists()


def test_a_head_that_was_never_trained_is_refused_by_name(tmp_path):
    save_checkpoint(tmp_path, "bert", "masked-lm")
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(str(tmp_path), CLASSIFIER, OPTIONS)
    told = str(caught.value)
    assert "'classifier.weight'" in told
    assert "'bert.pooler.dense.weight'" in told
    assert "random numbers" in told
    assert "\n" not in told


def test_weights_that_no_output_needs_may_be_missing(tmp_path):
    """A language model has no pooler, which the bare model has, and does not use for its output."""
    saved = save_checkpoint(tmp_path, "bert", "masked-lm")
    found = open_checkpoint(str(tmp_path), "default", OPTIONS).model
    assert type(found).__name__ == "BertModel"
    expected = saved.bert.state_dict()
    assert all(torch.equal(found.state_dict()[name], expected[name]) for name in expected)


def test_tied_weights_are_not_missing(tmp_path):
    save_checkpoint(tmp_path, "gpt2", "causal-lm")
    assert "lm_head.weight" not in weights_of(tmp_path)
    model = open_checkpoint(str(tmp_path), "causal-lm", OPTIONS).model
    assert model.lm_head.weight is model.transformer.wte.weight


def test_weights_of_another_architecture_are_refused(bert, tmp_path):
    save_checkpoint(tmp_path, "gpt2", "causal-lm")
    shutil.copy(bert / "config.json", tmp_path)
    with pytest.raises(CheckpointError, match=r"lack what BertForSequenceClassification needs"):
        open_checkpoint(str(tmp_path), CLASSIFIER, OPTIONS)


def test_weights_of_another_size_are_refused(bert, tmp_path):
    shutil.copytree(bert, tmp_path / "copy")
    config = json.loads((bert / "config.json").read_text())
    (tmp_path / "copy" / "config.json").write_text(json.dumps({**config, "vocab_size": 120}))
    said = re.escape("word_embeddings.weight' has the shape (99, 32), where")
    with pytest.raises(CheckpointError, match=said):
        open_checkpoint(str(tmp_path / "copy"), CLASSIFIER, OPTIONS)


@pytest.mark.parametrize("kind", ["Fourier", "Learned"])
def test_the_class_is_the_one_that_config_json_names(tmp_path, kind):
    config = transformers.PerceiverConfig(**TINY["perceiver"])
    if kind == "Fourier":
        # Its Fourier features are made for images of 224.
        config.image_size = 224
    model = getattr(transformers, f"PerceiverForImageClassification{kind}")(config)
    with quiet():
        model.save_pretrained(tmp_path)
    found = open_checkpoint(str(tmp_path), "image-classification", OPTIONS).model
    assert type(found).__name__ == f"PerceiverForImageClassification{kind}"


def test_reading_is_silent_and_leaves_the_log_as_it_was(tmp_path, capfd):
    save_checkpoint(tmp_path, "bert", "masked-lm")
    logger = logging.getLogger("transformers")
    before = logger.level
    had_bars = transformers.utils.logging.is_progress_bar_enabled()
    capfd.readouterr()
    open_checkpoint(str(tmp_path), "default", OPTIONS)
    assert capfd.readouterr() == ("", "")
    assert logger.level == before
    assert transformers.utils.logging.is_progress_bar_enabled() == had_bars


OWN_CODE = """
from transformers import BertConfig, BertForSequenceClassification

class OwnConfig(BertConfig):
    model_type = "own-bert"

class OwnModel(BertForSequenceClassification):
    config_class = OwnConfig
"""


@pytest.fixture
def own(bert, tmp_path, monkeypatch) -> Path:
    """A model whose Python code lies beside it."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", tmp_path / "cache")
    monkeypatch.setattr(sys, "path", list(sys.path))
    folder = tmp_path / "own"
    shutil.copytree(bert, folder)
    (folder / "own_model.py").write_text(OWN_CODE)
    config = json.loads((bert / "config.json").read_text())
    classes = {
        "AutoConfig": "own_model.OwnConfig",
        "AutoModelForSequenceClassification": "own_model.OwnModel",
    }
    config |= {"model_type": "own-bert", "auto_map": classes}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_code_that_comes_with_a_model_is_not_run_unless_asked_for(own, monkeypatch):
    def ask(*_):
        raise AssertionError("nobody sits there to be asked")

    monkeypatch.setattr("builtins.input", ask)
    with pytest.raises(CheckpointError, match=r"trust_remote_code=True \(--trust-remote-code\)"):
        open_checkpoint(str(own), CLASSIFIER, NO_PREPROCESSOR)


def test_code_that_is_trusted_is_run(own):
    trusted = TransformersOptions(preprocessor="none", trust_remote_code=True)
    found = open_checkpoint(str(own), CLASSIFIER, trusted, TypedTextOnnxConfig)
    assert type(found.model).__name__ == "OwnModel"
    assert list(found.config.inputs) == ["input_ids", "attention_mask", "token_type_ids"]


def test_a_name_that_is_no_directory_is_asked_for_on_the_hub(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-bert").mkdir()
    with pytest.raises(CheckpointError) as caught:
        find_checkpoint("my-brt")
    told = str(caught.value)
    assert "no directory my-brt here (there is my-bert), and no model of that ID" in told
    assert "\n" not in told


def test_a_model_of_the_hub_is_read_as_it_lies_in_the_cache(bert, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    commit = "0123456789" * 4
    cache = tmp_path / "models--someone--tiny-bert"
    shutil.copytree(bert, cache / "snapshots" / commit)
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text(commit)
    checkpoint = open_checkpoint("someone/tiny-bert", CLASSIFIER, OPTIONS)
    assert checkpoint.folder == cache / "snapshots" / commit
    assert list(checkpoint.real) == ["preprocessed"]


@pytest.fixture
def hub(bert, tmp_path, monkeypatch) -> Path:
    """A hub with one model, whose files it hands out as its client would."""
    repository, cache = tmp_path / "repository", tmp_path / ("0123456789" * 4)
    shutil.copytree(bert, repository)
    for name in ("model.fp16.safetensors", "pytorch_model.bin", "own.py", "onnx/config.json"):
        (repository / name).parent.mkdir(exist_ok=True)
        (repository / name).write_text("not wanted")

    def fetch(name, *, revision, allow_patterns, ignore_patterns):
        assert (name, revision) in {("someone/bert", None), ("someone/bert", cache.name)}
        names = [str(each.relative_to(repository)) for each in repository.rglob("*.*")]
        for each in filter_repo_objects(
            names, allow_patterns=allow_patterns, ignore_patterns=ignore_patterns
        ):
            cache.mkdir(exist_ok=True)
            shutil.copy(repository / each, cache / each)
        return str(cache)

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    return repository


def fetched(hub: Path) -> set[str]:
    return {path.name for path in (hub.parent / ("0123456789" * 4)).iterdir()}


SMALL = {"config.json", "tokenizer.json", "tokenizer_config.json"}


def test_of_a_hub_one_kind_of_weights_is_fetched_and_no_code(hub):
    open_checkpoint("someone/bert", CLASSIFIER, OPTIONS)
    assert fetched(hub) == SMALL | {"model.safetensors"}


def test_parts_of_weights_are_fetched_by_their_index(bert, hub):
    shutil.rmtree(hub)
    copy_with(bert, hub, "sharded bin")
    (hub / "part-3.bin").write_text("not wanted")
    open_checkpoint("someone/bert", CLASSIFIER, OPTIONS)
    wanted = {"part-1.bin", "part-2.bin", "pytorch_model.bin.index.json"}
    assert fetched(hub) == SMALL | wanted


def test_code_is_fetched_where_it_is_trusted(hub):
    open_checkpoint("someone/bert", CLASSIFIER, TransformersOptions(trust_remote_code=True))
    assert fetched(hub) == SMALL | {"model.safetensors", "own.py"}


def test_what_cannot_be_exported_is_not_fetched(hub):
    with pytest.raises(UnknownFeatureError):
        open_checkpoint("someone/bert", "vision2seq-lm", OPTIONS)
    with pytest.raises(OpsetError):
        open_checkpoint("someone/bert", CLASSIFIER, TransformersOptions(opset=9))
    assert fetched(hub) == SMALL


def test_without_the_client_of_the_hub_it_is_said_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(CheckpointError, match="need 'huggingface_hub', which is not installed: "):
        find_checkpoint("bert")


def test_another_release_of_transformers_is_named(bert, monkeypatch):
    monkeypatch.setattr("partwise.transformers.installed.version", lambda _: "5.24.0")
    message = r"need its release 5\.23, and 5\.24\.0 is installed: pip install 'partwise\["
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(str(bert), CLASSIFIER, OPTIONS)
    project = Path(__file__).parents[2] / "pyproject.toml"
    assert f"transformers>={TRANSFORMERS},<5.24" in project.read_text()


def test_what_is_not_installed_is_named(bert, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    message = r"need 'onnxscript', which is not installed: pip install 'partwise\[transformers\]'"
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(str(bert), CLASSIFIER, OPTIONS)


@pytest.mark.parametrize(
    "name", ["models/bret", "./bret", "a/b/c", "/nowhere/at/all", "~no-such-user/bert"]
)
def test_a_mistaken_path_is_not_taken_for_an_id(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "bert").mkdir(parents=True)
    with pytest.raises(CheckpointError, match=f"There is no directory {name}") as caught:
        find_checkpoint(name)
    assert "hub" not in str(caught.value)
    assert ("there is models/bert" in str(caught.value)) == (name == "models/bret")


def test_what_a_server_needs_is_copied(bert, tmp_path):
    save_image_processor(tmp_path / "image", 16)
    checkpoint = open_checkpoint(str(bert), CLASSIFIER, NO_PREPROCESSOR)
    copies = checkpoint.save_beside(tmp_path)
    assert {copy.name for copy in copies} == {
        *("config.json", "tokenizer.json", "tokenizer_config.json")
    }
    assert all(copy.read_bytes() == (bert / copy.name).read_bytes() for copy in copies)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
    assert np.array_equal(tokenizer("ab")["input_ids"], [4, 5])


def test_all_that_a_tokenizer_reads_is_copied(tmp_path):
    names = {
        *("vocab.txt", "bpe.codes", "dict.txt", "normalizer.json", "target_vocab.json"),
        *("sentencepiece.bpe.model", "source.spm", "chat_template.jinja", "merges.txt"),
    }
    for name in (*names, "model.safetensors", "README.md", "notes.txt"):
        (tmp_path / name).touch()
    assert {path.name for path in served_files(tmp_path)} == names


def test_an_export_leaves_nothing_of_an_earlier_one_beside_it(tmp_path, monkeypatch):
    draft, beside, folder = (tmp_path / name for name in ("draft", "beside", "folder"))
    for place, names in {
        draft: ["model.onnx", "model.onnx.data"],
        beside: ["config.json", "vocab.txt"],
        folder: ["model.onnx", "config.json", "tokenizer.json", "notes.txt"],
    }.items():
        place.mkdir()
        for name in names:
            (place / name).write_text(place.name)
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
    moved = []

    def replace(old: Path, new: Path) -> None:
        # Killed at any moment, it leaves no model beside files of another one.
        assert not (folder / "model.onnx").exists()
        moved.append(new.name)
        old.rename(new)

    monkeypatch.setattr(os, "replace", replace)
    _publish(draft, folder, "model.onnx", sorted(beside.iterdir()))
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        "config.json": "beside",
        "vocab.txt": "beside",
        "model.onnx": "draft",
        "model.onnx.data": "draft",
        "notes.txt": "folder",
    }
    assert moved[-1] == "model.onnx"


def test_files_of_somebody_else_stay_beside_an_export(tmp_path):
    draft, beside, folder = (tmp_path / name for name in ("draft", "beside", "folder"))
    for place in (draft, beside, folder):
        place.mkdir()
    (draft / "model.onnx").touch()
    (beside / "vocab.txt").touch()
    (folder / "config.json").write_text(json.dumps({"threads": 4}))
    (folder / "boosted.model").touch()
    _publish(draft, folder, "model.onnx", [beside / "vocab.txt"])
    left = {path.name for path in folder.iterdir()}
    assert left == {"config.json", "boosted.model", "vocab.txt", "model.onnx"}


def test_no_file_is_removed_where_no_export_was(tmp_path):
    draft, beside, folder = (tmp_path / name for name in ("draft", "beside", "folder"))
    for path in (draft / "model.onnx", beside / "config.json", folder / "somebodys.model"):
        path.parent.mkdir()
        path.touch()
    _publish(draft, folder, "model.onnx", [beside / "config.json"])
    assert {path.name for path in folder.iterdir()} == {
        *("model.onnx", "config.json", "somebodys.model")
    }


def test_files_are_moved_where_a_file_system_has_no_locks(tmp_path, monkeypatch):
    def flock(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", flock)
    draft, folder = tmp_path / "draft", tmp_path / "folder"
    draft.mkdir()
    (draft / "model.onnx").touch()
    _publish(draft, folder, "model.onnx", [])
    assert [path.name for path in folder.iterdir()] == ["model.onnx"]
