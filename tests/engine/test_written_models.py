"""What a model is written to: memory, a file where it is large, or where its serde needs one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from partwise.engine.outcome import INLINE_BYTES
from partwise.engine.written_models import read_written, write_model
from partwise.errors import SerdeError
from partwise.models.serdes import PickleSerde
from partwise.models.serdes.protocol import reads_streams, writes_streams


class PathSerde:
    filename = "model.txt"

    def write(self, model: Any, file_path: str) -> None:
        Path(file_path).write_text(str(model))

    def read(self, file_path: str) -> Any:
        return Path(file_path).read_text()


class LostSerde(PathSerde):
    def write(self, model: Any, file_path: str) -> None:
        pass


class OwnWrite(PickleSerde):
    def write(self, model: Any, file_path: str) -> None:
        super().write([model, "with a note"], file_path)


class OwnRead(PickleSerde):
    def read(self, file_path: str) -> Any:
        return ("as read", super().read(file_path))


class OwnBoth(OwnRead, PickleSerde):
    def write_stream(self, model: Any, file: Any) -> None:
        super().write_stream(model, file)

    def read_stream(self, file: Any) -> Any:
        return super().read_stream(file)


def test_a_small_model_leaves_no_file(tmp_path) -> None:
    written = write_model({"mean": 1.5}, PickleSerde("m.pkl"), str(tmp_path))
    assert isinstance(written.content, bytes)
    assert (written.filename, written.serde) == ("m.pkl", "pickle")
    assert not list(tmp_path.iterdir())
    assert read_written(PickleSerde(), written) == {"mean": 1.5}


@pytest.mark.parametrize("parts", [1, 3, 40])
def test_a_large_one_is_written_to_a_file_as_it_comes(tmp_path, parts) -> None:
    model = [np.full(2 * INLINE_BYTES // 8 // parts, part) for part in range(parts)]
    PickleSerde().write(model, str(tmp_path / "by-path"))
    written = write_model(model, PickleSerde(), str(tmp_path))
    assert written.content == str(tmp_path / "model.pkl")
    assert Path(written.content).read_bytes() == (tmp_path / "by-path").read_bytes()
    np.testing.assert_array_equal(read_written(PickleSerde(), written), model)


def test_a_file_of_an_earlier_model_is_replaced(tmp_path) -> None:
    first = write_model(bytes(3 * INLINE_BYTES), PickleSerde(), str(tmp_path))
    second = write_model(bytes(2 * INLINE_BYTES), PickleSerde(), str(tmp_path))
    assert first.content == second.content
    assert read_written(PickleSerde(), second) == bytes(2 * INLINE_BYTES)


def test_a_serde_that_writes_files_goes_on_to_write_them(tmp_path) -> None:
    written = write_model(1.5, PathSerde(), str(tmp_path))
    assert written.content == str(tmp_path / "model.txt")
    assert read_written(PathSerde(), written) == "1.5"
    with pytest.raises(SerdeError, match=r"LostSerde.write\(\) left no file"):
        write_model(1.5, LostSerde(), str(tmp_path / "other"))


@pytest.mark.parametrize("serde", [OwnWrite(), OwnRead()])
def test_a_class_derived_from_ours_is_asked_for_what_it_does_itself(tmp_path, serde) -> None:
    assert writes_streams(PickleSerde())
    assert reads_streams(PickleSerde())
    assert writes_streams(serde) == isinstance(serde, OwnRead)
    assert reads_streams(serde) == isinstance(serde, OwnWrite)
    read = read_written(serde, write_model(1.5, serde, str(tmp_path)))
    assert read == ([1.5, "with a note"] if isinstance(serde, OwnWrite) else ("as read", 1.5))


def test_one_that_is_derived_and_has_its_own_streams_is_asked_for_these(tmp_path) -> None:
    assert writes_streams(OwnBoth())
    assert reads_streams(OwnBoth())
    written = write_model(1.5, OwnBoth(), str(tmp_path))
    assert read_written(OwnBoth(), written) == 1.5
