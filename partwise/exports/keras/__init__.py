"""Keras models as ONNX."""
