"""XLA's profiler, as JAX and TensorFlow use it: XPlane files, and the JSON of its trace viewer."""
