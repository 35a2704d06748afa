"""LightGBM models as ONNX."""
