"""What operators cost: floating-point operations and bytes, from the shapes of their tensors, and what a device allows.

`operation_cost` is the cost of one operator and `formulas` what rules share; `framework` has the rules of operators
that a profiler records with their shapes, `onnx` those of a model's nodes. `roofs` compares a cost with a device's
peaks.
"""
