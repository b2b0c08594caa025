"""Rules over metrics: what is wrong, how sure, what it costs, what to do (floor 3)."""
