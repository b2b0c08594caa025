"""What the nodes of a model cost, by ONNX's operators and some of onnxruntime's.

A rule is a small function of the shapes and types of a node's tensors. `node_tensors` is what rules see;
`node_products` has those of matrix products and convolutions, `node_costs` all others, and applies them. No rule reads
a file, and none is about one model.
"""
