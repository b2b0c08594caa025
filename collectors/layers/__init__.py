"""The layers of a model, operator by operator, as a dry run or an ONNX file tells them, for the traces of its training."""
