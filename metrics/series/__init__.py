"""How iterations differ over a capture: statistics, outliers, changes, growth."""
