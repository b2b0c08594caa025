"""Integers in, loops out: the suffix tree and the iteration miner (floor 1; knows no trace)."""
