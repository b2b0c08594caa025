"""What each kernel computes: its category, the precision of its factors, and the unit that multiplies them.

`kinds` defines the words, `pattern_tables` reads the patterns of names from `patterns/`, `classify` applies them.
"""
