"""How long a test waits for what must come, before it says that it hangs: no test is about the machine's speed."""

__all__ = ["PATIENCE_S", "UNHURRIED"]

PATIENCE_S = 300.0

# The same of a job that collects, in its environment: for the agent's first answer, and for its last records.
UNHURRIED = {"DEEPPROF_EARLY_MS": "60000", "DEEPPROF_FINISH_MS": "60000"}
