"""What each kernel computes: its category, the precision of its factors, and the unit that multiplies them.

`kinds` defines the words, `pattern_tables` reads the patterns of names from `patterns/`, `classify` applies them.
`running` divides the time among the kernels that run in it, `computed_work` adds that up by kind, `loop_work` does so
for a loop and has what rules on it need. `kind_words` has the words for reports, `kernel_titles` short names of
kernels.
"""
