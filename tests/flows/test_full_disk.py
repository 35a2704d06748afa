"""A disk of workers that is full, in a whole run on a cluster."""

import os
from pathlib import Path

import dask
import pyarrow as pa
import pytest

from partwise import LocalCluster, map_partitions
from partwise.errors import RunFailedError
from partwise.outcomes import RunStatus
from tests.engine.test_scratch import small_disk

ROWS = pa.table({"key": list(range(24)), "value": [float(i) for i in range(24)]})


@pytest.mark.slow
def test_a_run_on_a_full_disk_stops_with_one_sentence_and_is_resumed(
    tmp_path, prefect_server
) -> None:
    is_full = tmp_path / "full"
    is_full.touch()
    path = str(is_full)

    def function(data, context):
        if context.key >= 12 and os.path.exists(path):
            Path("filler").write_bytes(bytes(64 << 20))
        return {"key": [context.key]}

    with small_disk(tmp_path / "disk", 24) as disk, dask.config.set(temporary_directory=str(disk)):
        arguments = {
            "run_id": "full-disk",
            "store": tmp_path / "store",
            "cluster": LocalCluster(workers=2),
        }
        with pytest.raises(
            RunFailedError, match=r"scratch folder .* cannot be used: .*resume"
        ) as e:
            map_partitions(ROWS, "key", function, **arguments)
        run = e.value.run
        assert run.status is RunStatus.FAILURE
        # Nobody is blamed: what was not done is not FAILED.
        assert "FAILED" not in run.counts, run.counts
        done = run.counts.get("DONE", 0)
        is_full.unlink()
        again = map_partitions(ROWS, "key", function, on_existing_artifacts="resume", **arguments)
    assert again.counts == {"DONE": 24}
    assert again.kept == done
