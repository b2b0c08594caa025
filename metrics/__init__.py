"""What is measured on a trace and its iterations (floor 2)."""
