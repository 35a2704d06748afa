"""Classes of Keras models and layers, in a module by itself: making them imports TensorFlow."""

from typing import Any

import keras
from keras import layers


class Difference(keras.Model):
    """A subclass whose `call` names its inputs, and which knows nothing of training."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = layers.Dense(2)

    def call(self, left: Any, right: Any) -> Any:
        found = self.layer(left) - self.layer(right)
        return [found, keras.ops.max(found, axis=-1)]


class Either(keras.Model):
    """A subclass whose `call` does with one of its inputs."""

    def call(self, left: Any = None, right: Any = None) -> Any:
        return left if right is None else -right


class Placed(layers.Layer):
    """Adds a number for each place, of which it has eight."""

    def build(self, shape: Any) -> None:
        self.places = self.add_weight(shape=(8, shape[-1]), initializer="normal")

    def call(self, rows: Any) -> Any:
        length = keras.ops.shape(rows)[1]
        return rows + keras.ops.take(self.places, keras.ops.arange(length), axis=0)


class Digamma(layers.Layer):
    """What ONNX has no operator for."""

    def call(self, rows: Any) -> Any:
        import tensorflow as tf

        return tf.math.digamma(rows)
