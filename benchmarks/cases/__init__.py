"""Traces with a known verdict, and how often the diagnosis's headline is it (`make cases`)."""
