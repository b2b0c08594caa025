"""Figures of the source code that may only fall: how many modules, lines, words, circles and names (`make house`)."""
