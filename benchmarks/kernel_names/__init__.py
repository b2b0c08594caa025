"""How well kernels are classified, scored against labels: `python -m benchmarks.kernel_names`.

`labels` reads what is right, `answers` what DeepProf finds, `scoring` compares them.
"""
