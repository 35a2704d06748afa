"""What the function of a partition says to the worker and asks it, on any of its threads."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from socket import socket

from partwise.engine.messages import (
    Artifact,
    ArtifactFound,
    ArtifactMissing,
    ArtifactRequest,
    Connection,
    Message,
    Report,
    ReportAnswer,
)
from partwise.engine.outcome import Content
from partwise.errors import ArtifactNotFoundError


class SharedConnection(Connection):
    """A child's end: its threads send one after the other, and each has the answer it asked for."""

    def __init__(self, sock: socket) -> None:
        super().__init__(sock)
        self._renew_turn()
        # Another thread may have its turn while the function forks; the fork lacks that thread.
        os.register_at_fork(after_in_child=self._renew_turn)

    def send(self, message: Message) -> None:
        """Send a message.

        Raises:
            OSError: The other side is gone.
        """
        with self._turn:
            super().send(message)

    def ask(
        self, asked: ArtifactRequest | Report
    ) -> ArtifactFound | ArtifactMissing | ReportAnswer:
        """Send a question and return the answer to it."""
        with self._turn:
            super().send(asked)
            while True:
                match self.receive():
                    case (ArtifactFound() | ArtifactMissing() | ReportAnswer()) as answer:
                        # Else who asked has ended before the answer, or was interrupted.
                        if answer.question == asked.question:
                            return answer
                    case answer:
                        raise RuntimeError(f"a child asked something and was sent {answer!r}")

    def _renew_turn(self) -> None:
        # One that a thread can take twice: a signal may come while it has its turn.
        self._turn = threading.RLock()


class ParentLink:
    """Artifacts of the partition at work, through the worker.

    `enclose` makes content for a message.
    """

    def __init__(
        self, connection: SharedConnection, index: int, enclose: Callable[[bytes], Content]
    ) -> None:
        self._connection = connection
        self._index = index
        self._enclose = enclose

    def upload(self, filename: str, content: bytes) -> None:
        """Hand an artifact over at once, so that it outlives this process."""
        enclosed = self._enclose(content)
        self._connection.send(Artifact(index=self._index, filename=filename, content=enclosed))

    def download(self, filename: str, run_id: str | None) -> bytes:
        """Ask the worker for an artifact.

        Raises:
            ArtifactNotFoundError: There is none.
        """
        request = ArtifactRequest(
            index=self._index, question=_new_question(), filename=filename, run_id=run_id
        )
        match self._connection.ask(request):
            case ArtifactFound(path=path):
                content = Path(path).read_bytes()
                os.unlink(path)
                return content
            case ArtifactMissing(message=message):
                raise ArtifactNotFoundError(message)
            case answer:
                raise RuntimeError(f"a child asked for an artifact and was sent {answer!r}")

    def report(self, step: int, value: float) -> bool:
        """Tell the worker a number, and return whether the function is to give up."""
        report = Report(index=self._index, question=_new_question(), step=step, value=value)
        match self._connection.ask(report):
            case ReportAnswer(gives_up=gives_up):
                return gives_up
            case answer:
                raise RuntimeError(f"a child reported a number and was sent {answer!r}")


def _new_question() -> int:
    # Not counted: forks would count on from the same number. Nor by `random`, which is seeded.
    return int.from_bytes(os.urandom(6))
