"""C++ names: demangled, and cut to the part that people use for a kernel."""
