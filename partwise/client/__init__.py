"""Questions to a server of models, from Python: the call of a predictor, over HTTP."""

from partwise.client.clients import AsyncClient, Client
from partwise.client.exchange import UnansweredError

__all__ = ["AsyncClient", "Client", "UnansweredError"]
