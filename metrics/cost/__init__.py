"""What operators cost: floating-point operations and bytes, from the shapes of their tensors, and what a device allows.

`operation_cost` is the cost of one operator and what rules share; `framework` has the rules of operators that a
profiler records with their shapes, `onnx` those of a model's nodes. `trace_costs` gives the cost of what a trace
recorded: `signatures` evaluates each distinct call once, `call_links` finds the call of every kernel, and
`alike_kernels` that of kernels whose launch is missing. `roofs` compares a cost with a device's peaks.
"""
