"""XGBoost models as ONNX."""
