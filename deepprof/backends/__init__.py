"""Backends of inference that run a model and state what each of their layers needed: ONNX Runtime, OpenVINO, TensorRT.

`backend` has what they share; each of the others is one backend. Which operators of the model a layer computes is found
by `metrics.cost.mapping`.
"""
