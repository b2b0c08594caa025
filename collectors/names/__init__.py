"""C++ names: demangled, and cut to what people call a kernel."""
