"""Models as graphs of operators with the shapes of their tensors, read from files that frameworks export."""
