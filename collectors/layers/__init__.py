"""The layers of a model, operator by operator, from a dry run or an ONNX file, for traces of its training."""
