"""PyTorch modules as ONNX, TorchScript and .pt2."""
