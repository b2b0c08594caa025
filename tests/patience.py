"""How long a test waits for what must come, before it says that it hangs: no test is about the machine's speed."""

__all__ = ["PATIENCE_S"]

PATIENCE_S = 300.0
