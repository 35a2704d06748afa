"""What the workers of an experiment load first: they wait seconds where others wait minutes."""

from partwise.engine.worker import tasks

tasks.IDLE_S = 2.0
