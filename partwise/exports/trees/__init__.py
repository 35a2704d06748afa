"""Models of trees as ONNX: LightGBM and XGBoost."""
