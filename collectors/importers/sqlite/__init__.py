"""SQLite databases as columns: what all formats that are one share.

`pages.c` reads plain integers off the pages; SQLite reads all the rest.
"""
