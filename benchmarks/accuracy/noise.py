"""What makes iterations differ: shapes, autotuning, variants, and kernels more or less."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.accuracy.jobs import Job
from benchmarks.accuracy.kernels import Ints, Kernels, Names, kernels_of

RETUNED, SUBSTITUTED, TRIED = 100, 101, 110  # numbers of variants; shape buckets have 1, 2, …
MOST_INSERTED, MOST_DELETED, MOST_TRIED = 14, 4, 5


@dataclass(frozen=True)
class Noise:
    """The noise of one job; `foreign` are the names that insertions bring, `bucketed` those with a variant per shape.

    The first kernel of what is edited stays where it is, so that the truth stays true.
    """

    job: Job
    names: Names
    foreign: Ints
    bucketed: Ints
    rng: np.random.Generator

    def edited(self, kernels: Kernels, number: int) -> Kernels:
        """Return what runs in place of `kernels` in the iteration of that number."""
        made = self.shaped(kernels.copy())
        made = self.retuned(made)
        made = self.substituted(made)
        if number < self.job.autotuned:
            made = self.autotuned(made)
        for _ in range(int(self.rng.poisson(self.job.insertions))):
            made = self.inserted(made)
        for _ in range(int(self.rng.poisson(self.job.deletions))):
            made = self.deleted(made)
        return made

    def shaped(self, kernels: Kernels) -> Kernels:
        """Return the kernels for a random bucket of shapes."""
        if self.job.buckets > 1:
            which = int(self.rng.integers(self.job.buckets))
            self.replace(kernels, np.isin(kernels["symbol"], self.bucketed), which)
        return kernels

    def retuned(self, kernels: Kernels) -> Kernels:
        """Return the kernels, at times with one of them as a variant wherever it runs."""
        if self.rng.random() < self.job.retuned:
            chosen = self.rng.choice(kernels["symbol"])
            self.replace(kernels, kernels["symbol"] == chosen, RETUNED)
        return kernels

    def substituted(self, kernels: Kernels) -> Kernels:
        """Return the kernels with each one replaced at times."""
        if self.job.substitutions:
            self.replace(kernels, self.rng.random(len(kernels)) < self.job.substitutions, SUBSTITUTED)
        return kernels

    def replace(self, kernels: Kernels, where: npt.NDArray[np.bool_], which: int) -> None:
        """Put that variant in place of the kernels so marked."""
        if where.any():
            kernels["symbol"][where] = self.names.variants(kernels["symbol"][where], which)

    def autotuned(self, kernels: Kernels) -> Kernels:
        """Return the kernels, some of them preceded by the variants that are tried before one is chosen."""
        at = 1 + np.flatnonzero(self.rng.random(len(kernels) - 1) < self.job.autotuned_share)
        places = np.repeat(at, self.rng.integers(1, MOST_TRIED + 1, len(at)))
        tried = kernels[places]
        which = TRIED + np.arange(len(places)) % MOST_TRIED
        for variant in np.unique(which).tolist():
            self.replace(tried, which == variant, variant)
        return np.insert(kernels, places, tried)

    def inserted(self, kernels: Kernels) -> Kernels:
        """Return the kernels with a few more of them at some place."""
        place = int(self.rng.integers(1, len(kernels)))
        more = self.rng.choice(self.foreign, int(self.rng.integers(1, MOST_INSERTED + 1)))
        return np.insert(kernels, place, kernels_of(more, self.rng))

    def deleted(self, kernels: Kernels) -> Kernels:
        """Return the kernels without a few of them at some place."""
        count = int(self.rng.integers(1, MOST_DELETED + 1))
        place = int(self.rng.integers(1, max(2, len(kernels) - count)))
        return np.delete(kernels, np.s_[place : place + count])


def make_noise(job: Job, names: Names, symbols: Ints, rng: np.random.Generator) -> Noise:
    """Return the noise for a job that uses these symbols: half of what it inserts are its own names."""
    used = np.unique(symbols)
    foreign = np.concatenate([names.new(6), rng.choice(used, min(6, len(used)), replace=False)])
    bucketed = used[rng.random(len(used)) < job.bucket_share]
    return Noise(job, names, foreign, bucketed, rng)
