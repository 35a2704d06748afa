"""Loaded models, as many as a number of bytes holds; each is loaded once, whoever asks for it."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Lock

from partwise.serving.levels import Place
from partwise.serving.served_model import ServedModel

DEFAULT_BYTES = 128 * 2**20
"""About 1,900 models of small trees."""

_WHILE_WARMING = 1.5
"""What is held, as a factor, while the models of a new version are loaded beside the old ones."""

_Identity = tuple[str, str, str]


class ModelCache:
    """Models by the checksums of their files, the least recently used of which leave first."""

    def __init__(self, most_bytes: int = DEFAULT_BYTES) -> None:
        self.most_bytes = most_bytes
        self.bytes = 0
        self.loads = 0
        """How many models were loaded so far."""
        self._factor = 1.0
        self._lock = Lock()
        self._models: OrderedDict[_Identity, ServedModel] = OrderedDict()
        self._loading: dict[_Identity, Future[ServedModel]] = {}

    def __len__(self) -> int:
        return len(self._models)

    def __contains__(self, place: Place) -> bool:
        return place.identity in self._models

    def load(self, place: Place, load: Callable[[], ServedModel]) -> ServedModel:
        """Return a model; where it is not held, load it unless another thread does.

        Raises:
            Exception: What `load` raised, also in another thread. The next who asks tries again.
        """
        identity = place.identity
        with self._lock:
            model = self._models.get(identity)
            if model is not None:
                self._models.move_to_end(identity)
                return model
            waiting = self._loading.get(identity)
            if waiting is None:
                mine = self._loading[identity] = Future()
        if waiting is not None:
            return waiting.result()
        try:
            model = load()
        except BaseException as error:
            with self._lock:
                del self._loading[identity]
            mine.set_exception(error)
            raise
        with self._lock:
            del self._loading[identity]
            self._models[identity] = model
            self.loads += 1
            self.bytes += model.size_bytes
            self._make_room(identity)
        mine.set_result(model)
        return model

    def _make_room(self, newest: _Identity) -> None:
        """Let models go until the others fit; the newest one stays in any case."""
        while self.bytes > self.most_bytes * self._factor:
            oldest = next(iter(self._models))
            if oldest == newest:
                return
            self.bytes -= self._models.pop(oldest).size_bytes

    @contextmanager
    def room_for_another_version(self) -> Iterator[None]:
        """Hold half as much again, for a while, so that warming one version cools less of another.

        Where all of the new one is loaded, it has the room, and the other what is left.
        """
        self._factor = _WHILE_WARMING
        try:
            yield
        finally:
            self._factor = 1.0

    def clear(self) -> None:
        """Let all models go."""
        with self._lock:
            self._models.clear()
            self.bytes = 0
