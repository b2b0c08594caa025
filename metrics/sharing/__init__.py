"""Devices that several processes use at once: how long each one's iterations become, and by what.

`shared_places` finds which ranks share a device; `work`, `repeated` and `losses`, then `shares` and `devices`, say what
they cost each other.
"""
