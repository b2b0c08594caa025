"""The agent of a node: takes packets from the jobs on it, and sends the daemon batches it can rely on."""
