"""The knobs of a made-up training job."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Job:
    """A training job as a sequence of kernels; sizes are in kernels, `…_every` in iterations, 0 is never.

    Rates are means per iteration, except for `substitutions`, which is the probability of every kernel.
    """

    seed: int = 0
    iterations: int = 40

    # The model: layers come in `stages` of different blocks; each layer runs `experts` times its own block.
    layers: int = 12
    stages: int = 1
    forward: int = 11
    backward: int = 19
    experts: int = 0
    expert: int = 4
    pre: int = 7
    head: int = 7
    optimizer: int = 6
    optimizer_repeats: int = 8
    alphabet: int = 40
    own: float = 0.5  # of a block's kernels have names that no other block uses

    # What an iteration is: micro-batches before the optimizer, or passes of a critic before one of the generator.
    micro: int = 1
    critic: int = 0

    # What happens now and then.
    eval_every: int = 0
    eval_passes: int = 6
    checkpoint_every: int = 0
    checkpoint: int = 30
    statistics_every: int = 0
    statistics: int = 12
    growth_every: int = 0  # one kernel more, for good

    # Several loops: sections of many iterations, two models taking turns; `similar` ones share their blocks.
    stretches: int = 1
    similar: bool = False

    # Noise.
    insertions: float = 0.0
    deletions: float = 0.0
    substitutions: float = 0.0
    autotuned: int = 0  # first iterations, in which kernels are tried out
    autotuned_share: float = 0.2  # of their kernels
    retuned: float = 0.0  # probability that one kernel runs as a variant for a whole iteration
    buckets: int = 1  # of shapes, one per iteration
    bucket_share: float = 0.2  # of the kernels' names have a variant for each

    # The capture: shares of the first and the last iteration that it misses, together with all before and after.
    prologue: int = 200
    epilogue: int = 0
    cut_start: float = 0.0
    cut_end: float = 0.0

    # Pauses: where the iteration begins, where each micro-batch does, and at another place of the iteration.
    start_gap_us: float = 0.0
    micro_gap_us: float = 0.0
    other_gap_us: float = 0.0

    def __str__(self) -> str:
        """Return the knobs that are turned."""
        turned = [f.name for f in fields(self) if getattr(self, f.name) != f.default]
        return ", ".join(f"{name}={getattr(self, name):.5g}" for name in turned)

    @property
    def forward_size(self) -> int:
        """Kernels of one forward pass."""
        return self.pre + self.head + self.layers * (self.forward + self.experts * self.expert)

    @property
    def size(self) -> int:
        """Kernels of one iteration without noise, for two equal models where there are two."""
        back = self.layers * (self.backward + self.experts * self.expert * (self.backward > 0))
        update = self.optimizer * self.optimizer_repeats
        if self.critic:
            return (self.critic + 1) * (2 * self.forward_size + back + update) + back
        return self.micro * (self.forward_size + back) + update
