"""What happens to memory: what is alive and whose it is, what kernels need of it, and what moves."""
