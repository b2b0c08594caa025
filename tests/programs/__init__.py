"""Small PyTorch training programs, each with one mistake planted, that profile themselves.

`python -m tests.programs NAME -o trace.json` trains, writes the trace and prints the true begins of the iterations.
"""
