"""What the nodes of a model cost, by ONNX's operators and some of onnxruntime's.

A rule is a small function of the shapes and types of a node's tensors. `node_tensors` is what rules see;
`node_products` has those of matrix products and convolutions, `node_attention` of attention and recurrent layers,
`node_pointwise` of functions of an element, `node_windows` of pooling, reductions and normalisations, `node_moves` of
what only moves elements, or does nothing. `node_costs` applies them. No rule reads a file, and none is about one model.
"""
