"""What the routes of a server answer."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from starlette.types import Receive, Scope

from partwise.serving.wire import JSON


@dataclass(frozen=True, slots=True)
class Reply:
    """What a route answers."""

    body: bytes
    status: int = 200
    content_type: bytes = JSON.encode()
    headers: Mapping[str, str] = field(default_factory=dict)
    """Further ones."""


Handler = Callable[[Scope, Receive], Awaitable[Reply]]
