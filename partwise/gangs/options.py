"""How a gang is executed: time limits, restarts."""

from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from partwise.engine.limits import SILENCE_S
from partwise.form_schema import FormSettings


class GangOptions(FormSettings):
    """How the ranks of a gang are started and ended. The defaults suit most runs."""

    model_config = ConfigDict(title="Gang options")

    timeout_s: Annotated[float, Field(gt=0)] | SkipJsonSchema[None] = Field(
        title="Time limit (s)",
        default=None,
        description="Seconds after which an attempt is ended from outside. Default: no limit.",
    )
    grace_s: float = Field(
        title="Grace (s)",
        default=30.0,
        ge=0,
        description="Seconds that ranks have to end by themselves, once they are asked to.",
    )
    join_timeout_s: float = Field(
        title="Wait for workers (s)",
        default=300.0,
        gt=0,
        description="Seconds to wait for workers that are busy with something else.",
    )
    silence_s: float = Field(
        title="Silence of a worker (s)",
        default=SILENCE_S,
        gt=0,
        description="Seconds after which a worker that is not heard of counts as lost, and a rank "
        "that was stopped (SIGSTOP) is killed.",
    )
    report_interval_s: float = Field(
        title="Word of what takes long (s)",
        default=60.0,
        gt=0,
        description="Seconds between two lines of the log that say how long the ranks have run.",
    )
    max_retries: int = Field(
        title="Retries",
        default=0,
        ge=0,
        description="How often all ranks are started again after one has failed, from the last "
        "checkpoint where there is one.",
    )
