"""SQLite databases as columns: what all formats that are one share."""
