"""Where the time goes: the parts of a device's and an iteration's time, and what they cost."""
