"""When a checkpoint is due: so many steps or minutes after the last one."""

import time


class CheckpointSchedule:
    """Counts steps and minutes since the last checkpoint, or since the start."""

    def __init__(self) -> None:
        self._last_step = 0
        self._last_time = time.monotonic()

    def is_due(
        self, step: int, every_steps: int | None = None, every_minutes: float | None = None
    ) -> bool:
        """Whether enough steps or minutes are over; always, where neither is given."""
        if every_steps is every_minutes is None:
            return True
        if every_steps is not None and step - self._last_step >= every_steps:
            return True
        passed = time.monotonic() - self._last_time
        return every_minutes is not None and passed >= every_minutes * 60

    def kept(self, step: int) -> None:
        """Count from now on, and from this step."""
        self._last_step, self._last_time = step, time.monotonic()
