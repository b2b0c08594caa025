"""Live collectors: what runs inside a training job, and the packets in which it tells the agent of its node."""
