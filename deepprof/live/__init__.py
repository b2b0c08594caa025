"""Running jobs: the agent of a node, the daemon that watches (`service`), its clients, and the records between them."""
