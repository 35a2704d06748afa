"""Graphs of ONNX: the order of nodes, trees, less precision."""
