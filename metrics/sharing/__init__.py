"""Devices that several processes use at once: how long each one's iterations become, and by what."""
