"""The table of kinds, which names what stands elsewhere."""

from typing import get_args

import partwise
from partwise.flows import model_pipeline
from partwise.flows.orchestration.run_flow import RunFlow
from partwise.runs.kinds import KINDS, RunKind
from partwise.tasks.run_shards import step_of


def test_each_kind_has_an_entry() -> None:
    assert tuple(KINDS) == get_args(RunKind)


def test_each_flow_has_a_kind_and_each_kind_a_flow() -> None:
    flows = {name for name in partwise.__all__ if isinstance(getattr(partwise, name), RunFlow)}
    assert flows - {model_pipeline.fn.__name__} == {kind.flow for kind in KINDS.values()}


def test_a_step_is_named_for_its_kind() -> None:
    steps = [step_of(name) for name, kind in KINDS.items() if kind.step]
    assert len({step.name for step in steps}) == len(steps) == 9
    assert steps[0].name == "train-partitions"
    assert steps[0].task.task_run_name == "train {group}"
