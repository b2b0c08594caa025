"""Records in: the record table, importers of trace files, and live collectors (floor 1)."""
