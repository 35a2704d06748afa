"""What one sees of a gang while it works: a line for each event, and what the ranks write."""

from partwise.engine.driver.cluster_watch import Logger
from partwise.gangs.events import GangEvent


class GangLines:
    """Writes the events of a gang to a log.

    What rank 0 writes is news, as it is where libraries report on all ranks; of the others it is
    for who looks closer. The run keeps the logs of all.
    """

    def __init__(self, logger: Logger, run_id: str) -> None:
        self._logger = logger
        self._run_id = run_id

    def update(self, event: GangEvent) -> None:
        """Write the lines of an event."""
        if event.kind == "log":
            write = self._logger.info if event.rank == 0 else self._logger.debug
            write("%s", event)
        elif event.kind == "restart" or event.error:
            self._logger.warning("Run %s: %s.", self._run_id, str(event).rstrip("."))
        else:
            self._logger.info("Run %s: %s.", self._run_id, event)
