"""Training programs that know nothing of DeepProf: each trains a fixed number of iterations on a CPU."""
