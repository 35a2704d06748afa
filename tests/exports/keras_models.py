"""Small Keras models whose exports are looked at, with inputs for each."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.lazily import Lazily

keras, layers = Lazily("keras"), Lazily("keras.layers")

CHANCE = np.random.default_rng(3)


def numbers(*shape: int) -> np.ndarray:
    return CHANCE.normal(size=shape).astype(np.float32)


def ids(*shape: int) -> np.ndarray:
    return CHANCE.integers(0, 50, shape)


def make_conv() -> Any:
    return keras.Sequential(
        [
            keras.Input((6, 6, 3)),
            layers.Conv2D(4, 3, padding="same"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(2, activation="softmax"),
        ]
    )


def make_recurrent() -> Any:
    """A sequence to a sequence, of any length, where zeros are masked."""
    return keras.Sequential(
        [
            keras.Input((None, 4)),
            layers.Masking(),
            layers.LSTM(5, return_sequences=True),
            layers.GRU(3, return_sequences=True),
        ]
    )


def make_embedding() -> Any:
    return keras.Sequential(
        [
            keras.Input((None,), dtype="int64"),
            layers.Embedding(50, 8, mask_zero=True),
            layers.GlobalAveragePooling1D(),
            layers.Dense(1),
        ]
    )


def make_attention() -> Any:
    rows = keras.Input((None, 8))
    found = layers.LayerNormalization()(rows + layers.MultiHeadAttention(2, 4)(rows, rows))
    return keras.Model(rows, layers.GlobalMaxPooling1D()(found))


def make_joined() -> Any:
    """Two inputs and three outputs by name, of which one is an input."""
    shop, day = keras.Input((3,), name="shop"), keras.Input((2,), name="day")
    both = layers.Concatenate()([shop, day])
    outputs = {"mean": layers.Dense(1)(both), "parts": layers.Dense(3)(both), "same": shop}
    return keras.Model([shop, day], outputs)


def make_mapped() -> Any:
    """Inputs whose names are not the keys that they have in a mapping, nor in their order."""
    given = {"y": keras.Input((3,), name="a"), "x": keras.Input((3,), name="b")}
    return keras.Model(given, layers.Dense(1)(10 * given["y"] + given["x"]))


def make_nested() -> Any:
    parts = {name: keras.Input((3,), name=name) for name in ("v", "u")}
    rest = keras.Input((3,), name="rest")
    return keras.Model({"parts": parts, "more": rest}, layers.Dense(1)(parts["u"] + 9 * rest))


def make_normalized() -> Any:
    scaled = layers.Normalization()
    scaled.adapt(np.linspace(-2, 5, 60, dtype=np.float32).reshape(20, 3))
    return keras.Sequential([keras.Input((3,)), scaled, layers.GaussianNoise(1.0), layers.Dense(2)])


def make_halved() -> Any:
    policy = keras.DTypePolicy("mixed_float16")
    return keras.Sequential([keras.Input((3,)), layers.Dense(4, dtype=policy), layers.Dense(1)])


def make_double() -> Any:
    return keras.Sequential([keras.Input((3,), dtype="float64"), layers.Dense(2, dtype="float64")])


def make_difference() -> Any:
    from tests.exports.keras_classes import Difference

    model = Difference()
    model(numbers(1, 3), numbers(1, 3))
    return model


def make_placed() -> Any:
    from tests.exports.keras_classes import Placed

    return keras.Sequential([keras.Input((None, 2)), Placed(), layers.Dense(1)])


def make_untranslatable() -> Any:
    from tests.exports.keras_classes import Digamma

    return keras.Sequential([keras.Input((3,)), Digamma(), layers.Dense(1)])


def make_table() -> Any:
    known = layers.IntegerLookup(vocabulary=[1, 2, 3])
    return keras.Sequential([keras.Input((1,), dtype="int64"), known, layers.Embedding(5, 2)])


MODELS: dict[str, tuple[Callable[[], Any], dict[str, np.ndarray]]] = {
    "conv": (make_conv, {"image": numbers(7, 6, 6, 3)}),
    "recurrent": (make_recurrent, {"steps": numbers(7, 4, 4)}),
    "embedding": (make_embedding, {"tokens": ids(7, 5)}),
    "attention": (make_attention, {"steps": numbers(7, 4, 8)}),
    "joined": (make_joined, {"day": numbers(7, 2), "shop": numbers(7, 3)}),
    "normalized": (make_normalized, {"rows": numbers(7, 3)}),
    "halved": (make_halved, {"rows": numbers(7, 3)}),
    "double": (make_double, {"rows": numbers(7, 3).astype(np.float64)}),
    "difference": (make_difference, {"right": numbers(7, 3), "left": numbers(7, 3)}),
    "placed": (make_placed, {"steps": numbers(7, 5, 2)}),
}
