"""An analysis as text, JSON or a file for another tool (floor 3)."""
