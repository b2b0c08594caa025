"""Recordings of all kinds, drawn from a seed by a generator that was written without the rules: is the answer right?"""
