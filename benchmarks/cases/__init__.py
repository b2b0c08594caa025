"""Traces with a recognized verdict, and how often the diagnosis's headline is it (`make cases`)."""
