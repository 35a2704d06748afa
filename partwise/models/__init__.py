"""Models as files: serdes, and ONNX files with what they say of themselves."""
