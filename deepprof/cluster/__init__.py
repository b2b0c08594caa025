"""The ranks of a large job analysed by many machines, and put together again."""
