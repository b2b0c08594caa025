"""Backends of inference that run a model and say what each of their layers took: ONNX Runtime, OpenVINO, TensorRT.

`backend` has what they share; each of the others is one backend. Which operators of the model a layer computes is found
by `metrics.cost.mapping`.
"""
