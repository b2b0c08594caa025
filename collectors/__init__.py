"""Input of records: the record table, the importers of trace files, and the live collectors (layer 1)."""
