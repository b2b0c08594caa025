"""What `benchmarks.gpu_overhead` is made of: loops in their own processes, a reader that counts their records."""
