"""Calling contexts: on whose behalf the device worked, the host was busy, and the device waited.

`slices` nests what the host had open, `backward` finds the forward operator of backward ones, `launches` where device
events come from, `stacks` which frames a recorder's call stacks add; `tree` makes one context of all equal paths
(`paths`, `frames`, `unfolding`), `measures` adds up what each needed.
"""
