"""Boxes that a person reads instead of events: stages, layers and sections of iterations.

`boxes` has their table, `titles` what they are called, `sections` makes few of many.
"""
