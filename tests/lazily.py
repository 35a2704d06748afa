"""Libraries that take seconds to import, by names that tests may use as if they had been."""

from pkgutil import resolve_name
from typing import Any


class Lazily:
    """A module that is imported when an attribute of it is first asked for.

    All processes that run tests collect all of them, and TensorFlow alone is five seconds of each.
    Pickled, as a global of a function that a worker is sent, it is the module itself. A function
    that a flow is given has to import by itself: a global like this has no fingerprint. It is not
    `import_module` that imports here: from a module with that in it, a fingerprint goes to all that
    are loaded, which are a thousand here, and takes half a minute.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, attribute: str) -> Any:
        # pytest, pickle and others look for names of their own on all that they see.
        if attribute.startswith(("_", "pytest")):
            raise AttributeError(attribute)
        return getattr(resolve_name(self.name), attribute)

    def __reduce__(self) -> tuple[Any, ...]:
        return resolve_name, (self.name,)
