"""SQLite databases as columns: shared by all formats that are SQLite databases.

`sqlite_pages.c` reads plain integers from the pages; SQLite reads all the rest.
"""
