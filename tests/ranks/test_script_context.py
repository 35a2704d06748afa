"""The context of a script: what the variables of its rank come to."""

import pytest

from partwise.ranks.script_context import script_context

VARIABLES = {
    "PARTWISE_RUN_ID": "run",
    "PARTWISE_OUTPUTS": "outputs",
    "PARTWISE_CHECKPOINTS": "checkpoints",
    "RANK": "3",
    "WORLD_SIZE": "4",
    "NODE_RANK": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RESTART_COUNT": "0",
}


@pytest.mark.parametrize(
    ("visible", "ranks", "devices"),
    [
        ("0,1", 2, ["cuda:0", "cuda:1"]),
        ("4, 7", 2, ["cuda:0", "cuda:1"]),
        ("GPU-a,GPU-b,GPU-c,GPU-d", 2, ["cuda:0", "cuda:1"]),
        ("0,1", 1, ["cuda:0"]),
        ("0,1", 3, ["cuda:0", "cuda:1", "cuda:0"]),
        ("", 2, ["cpu", "cpu"]),
        ("-1", 2, ["cpu", "cpu"]),
    ],
)
def test_the_ranks_of_a_node_have_gpus_of_their_own(monkeypatch, visible, ranks, devices) -> None:
    contexts = []
    for rank in range(ranks):
        local = {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(ranks)}
        for name, value in (VARIABLES | local | {"CUDA_VISIBLE_DEVICES": visible}).items():
            monkeypatch.setenv(name, value)
        context = script_context()
        assert context is not None
        assert context.local_rank == rank
        assert context.device == devices[rank]
        contexts.append(context)
    names = [name for context in contexts for name in context.gpus]
    given = [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1")]
    assert set(names) == set(given)
    assert len(names) == len(given) or ranks > len(given)
    backend = "nccl" if given else "gloo"
    assert {context.default_backend for context in contexts} == {backend}
