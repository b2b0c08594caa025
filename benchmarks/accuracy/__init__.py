"""`make accuracy`: how well the miner finds known iterations, as the tables of `docs/generated/accuracy.md`.

Made-up jobs (named scenarios, and random ones drawn from a broad distribution), real iterations repeated with noise,
real traces against their annotations, and sequences without a loop. Every seed was fixed before the miner was tuned,
and none was chosen for what it shows. A test fails when a row of the committed tables gets worse.
"""
