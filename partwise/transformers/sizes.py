"""Sizes: how large the inputs are that a graph is captured with, and those it is compared on."""

from dataclasses import dataclass

from partwise.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The size of each free axis. What a model has not is left out of its inputs."""

    batch: int = 2
    sequence: int = 8
    """Tokens of a text; of a decoder, those that follow the past."""
    decoder_sequence: int = 6
    """Tokens of a decoder's own text, where there is an encoder."""
    past: int = 5
    """Earlier tokens, whose keys and values are inputs."""
    choices: int = 4
    height: int = 32
    """Of an image, in pixels."""
    width: int = 32

    def of_axis(self, name: str) -> int:
        """Return the size of an axis by its name; a sum is that of its parts.

        Example:
            >>> Sizes(past=5, sequence=2).of_axis("past_sequence + sequence")
            7
        """
        parts = name.split(" + ")
        if unknown := [part for part in parts if part not in _SIZES]:
            raise InputError(
                f"There is no axis {unknown[0]!r}: choose one of {', '.join(_SIZES)}, or a sum of "
                'them, such as "past_sequence + sequence"; or override generate_dummy_inputs.'
            )
        return sum(_SIZES[part](self) for part in parts)


_SIZES = {
    "batch": lambda sizes: sizes.batch,
    "choice": lambda sizes: sizes.choices,
    "sequence": lambda sizes: sizes.sequence,
    "encoder_sequence": lambda sizes: sizes.sequence,
    "decoder_sequence": lambda sizes: sizes.decoder_sequence,
    "past_sequence": lambda sizes: sizes.past,
    "past_decoder_sequence": lambda sizes: sizes.past,
    "past_encoder_sequence": lambda sizes: sizes.sequence,
    "height": lambda sizes: sizes.height,
    "width": lambda sizes: sizes.width,
}
