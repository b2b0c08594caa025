"""Devices that several processes use at once: how much longer the iterations of every become, and why.

`shared_places` finds which ranks share a device; `work`, `repeated` and `losses`, then `shares` and `devices`, measure
what they cost each other.
"""
