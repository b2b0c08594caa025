"""The documents, and what writes those of them that follow from the code."""
