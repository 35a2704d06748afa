"""What of Prefect's inside we rely on, so that a release that changes it is noticed."""

from prefect._internal.concurrency.services import QueueService
from prefect.server.api.server import SubprocessASGIServer

from partwise.flows.orchestration.embedded_server import forget_unsent, start_embedded_server


def test_what_waits_to_be_sent_is_dropped() -> None:
    class Sender(QueueService[int]):
        async def _handle(self, item: int) -> None:
            raise AssertionError(item)

    sender = Sender()
    for item in range(3):
        sender._queue.put(item)
    forget_unsent()
    assert sender._queue.empty()


def test_no_server_is_embedded_where_one_is_named() -> None:
    start_embedded_server()
    assert SubprocessASGIServer._instances == {}
