"""The built-in rules, one module each."""
