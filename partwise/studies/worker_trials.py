"""Trials that are a Dask task each: a worker runs one in a child process, and commits it."""

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from partwise.cluster_calls import ANSWER_S, answer_of, forget_topic, known_workers
from partwise.engine.driver.shards import FAREWELL_S, tell_to_stop
from partwise.errors import ClusterError
from partwise.outcomes import Stop
from partwise.studies.assignment import BEGUN, Question, TrialAssignment, TrialReceipt
from partwise.studies.trials import Ask
from partwise.studies.worker import answer, end_study, run_trial

if TYPE_CHECKING:
    from distributed import Client, Future

ANSWERING_S = 2.0
"""A worker that does not take the answer of a question for so long goes without it."""

logger = logging.getLogger(__name__)


class WorkerTrials:
    """Runs trials on the workers of a cluster."""

    def __init__(self, client: "Client", token: str) -> None:
        self._client = client
        self._token = token
        self._is_stopped = False
        self._is_over = False
        self._begun_on: dict[int, set[str]] = {}
        """Workers on which a trial was begun, by its number."""

    def open(self, ask: Ask) -> None:
        """Have the questions of trials at work handed on."""
        self._ask = ask
        self._client.subscribe_topic(self._token, self._hear)

    def _hear(self, event: tuple[float, dict[str, Any]]) -> None:
        message = event[1]
        if BEGUN in message:
            self._begun_on.setdefault(message[BEGUN], set()).add(message["worker"])
        else:
            self._ask(Question(**message))

    def submit(self, assignment: TrialAssignment, start: int) -> "Future[TrialReceipt | None]":
        """Begin a trial, once more on a worker on which it has not failed."""
        failed_on = self._begun_on.get(assignment.number, set()) if start > 1 else set()
        others: list[str] = []
        if failed_on:
            # Without an answer, anywhere: the watch of the study tells of such a scheduler.
            with suppress(ClusterError):
                others = sorted(known_workers(self._client).keys() - failed_on)
        self._client.subscribe_topic(self._token, self._hear)
        future = self._client.submit(
            run_trial,
            assignment,
            workers=others or None,
            allow_other_workers=bool(others),
            key=f"trial-{assignment.number:05d}-{self._token}-{start}",
            # Dask takes the highest first: trials begin in the order of their numbers.
            priority=-assignment.number,
            pure=False,
        )
        # Once more: as with shards, the first wish may be lost with a connection.
        self._client.subscribe_topic(self._token, self._hear)
        return future

    def answer(self, question: Question, *, gives_up: bool) -> None:
        """Tell a trial whether it is given up."""
        self._try(
            answer,
            self._token,
            question.number,
            question.step,
            gives_up=gives_up,
            workers=[question.worker],
            callback_timeout=ANSWERING_S,
        )

    def stop(self, stop: Stop) -> None:  # noqa: ARG002 (what a gang wants to know)
        """Have all trials end."""
        if not self._is_stopped:
            self._is_stopped = True
            tell_to_stop(self._client, self._token, lambda: self._is_over)

    def close(self) -> None:
        """Leave nothing on the workers."""
        self._is_over = True
        try:
            self._client.unsubscribe_topic(self._token)
        except Exception:
            logger.debug("could not tidy up a study", exc_info=True)
        limit_s = FAREWELL_S if self._is_stopped else ANSWER_S
        self._try(end_study, self._token, callback_timeout=limit_s)
        forget_topic(self._client, self._token)

    def _try(self, function: Any, *arguments: Any, **more: Any) -> None:
        try:
            answer_of(
                self._client,
                lambda: self._client.run(function, *arguments, on_error="ignore", **more),
            )
        except Exception:
            # A worker that is gone has its trial begun again on another; where the whole cluster
            # is gone, so is what would have to be tidied there.
            logger.debug("could not reach the workers of a study", exc_info=True)
