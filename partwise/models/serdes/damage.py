"""One error for a file that a library cannot read, in place of what each library raises."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from partwise.errors import IntegrityError, PartwiseError
from partwise.formatting import reason


@contextmanager
def readable(file_path: str, library: str) -> Iterator[None]:
    """Turn what a library raises on a file into a sentence with the reason.

    Raises:
        IntegrityError: The library does not read it.
    """
    try:
        yield
    # A missing library is not the file's fault.
    except (PartwiseError, ImportError):
        raise
    # LightGBMError, XGBoostError, UnicodeDecodeError, BadZipFile, MemoryError and so on.
    except Exception as error:
        raise IntegrityError(
            f"{Path(file_path).name} is not a model that {library} reads: it is damaged, or "
            f"another program wrote it ({type(error).__name__}: {reason(error)})"
        ) from error
