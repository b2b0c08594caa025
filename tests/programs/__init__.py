"""Small PyTorch training programs, each with one mistake planted, that profile themselves.

`python -m tests.programs NAME… -o {}.json` trains, writes the traces and prints the true begins of the iterations.
"""
