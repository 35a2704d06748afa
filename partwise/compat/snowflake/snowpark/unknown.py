"""What there is not, said by a sentence."""

from typing import Any


class Partial:
    """A class with only some of the methods that theirs has."""

    def __getattr__(self, name: str) -> Any:
        """Refuse a name.

        Raises:
            AttributeError: Always; it says what to do.
        """
        what = type(self).__name__
        raise AttributeError(
            f"{what}.{name} is not among what partwise has of Snowpark: compute it in pandas, with "
            "frame.to_pandas() and session.create_dataframe(result)."
        )
