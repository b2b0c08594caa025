"""The documents of the page: one module a view, each with its type and the function that writes it.

A document is columnar: one list per column, all of one length. Texts that repeat are once in `strings`, columns have
their numbers, -1 for none. Of a tree, `parent` is a row before the own one, -1 for none. Times are nanoseconds.
"""
