"""What a node keeps of its ranks, whatever the names of their files."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from partwise.errors import InputError
from partwise.gangs.node_bundle import upload_node
from partwise.gangs.rank_settings import MODEL_FOLDER, RankOutcome
from partwise.runs.documents import execution_token


@pytest.fixture
def upload(local_store, tmp_path):
    """Keep what rank 0 has left in its model folder; return the names of the artifacts."""
    folder = tmp_path / "rank" / MODEL_FOLDER
    folder.mkdir(parents=True)
    log = SimpleNamespace(content=lambda: b"")
    rank: Any = SimpleNamespace(rank=0, directory=str(folder.parent), log=log)
    spec: Any = SimpleNamespace(token=execution_token(1, "0" * 8), run_id="run", store=local_store)

    def call(name: bytes) -> list[str]:
        path = Path(os.fsdecode(os.fsencode(folder) + b"/" + name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
        ((artifact,),) = upload_node(spec, 0, 1, [rank], [RankOutcome(status="DONE")])
        return artifact.filename

    return call


def test_bytes_that_are_not_text_are_kept_as_escapes(upload) -> None:
    """They were an error once all ranks had done their work, and the whole gang failed."""
    assert upload(b"od\xff.pt") == "od\\udcff.pt"


def test_a_name_that_is_too_long_is_refused_for_itself(upload) -> None:
    with pytest.raises(InputError, match=r"The file 'xxx.* cannot be kept: .* at most 255"):
        upload(b"/".join([b"x" * 250] * 4))
