"""Starts children as training programs do: processes.py fork|spawn|forkserver. Each trains a little."""

import multiprocessing
import sys
import time

import torch

LIFE_S = 300  # of a child whose parent was killed


def train(times: int) -> None:
    for _ in range(times):
        torch.ones(4).sin()


def train_on(told) -> None:
    """Train until told, then a recognized number of times."""
    until_s = time.monotonic() + LIFE_S
    while not told.is_set() and time.monotonic() < until_s:
        train(1)
    torch.ones(4).cos()
    train(10)


def main(method: str) -> int:
    context = multiprocessing.get_context(method)
    told = context.Event()
    children = [context.Process(target=train_on, args=(told,), daemon=is_daemon) for is_daemon in (False, True)]
    for child in children:
        child.start()
    sys.stdin.readline()
    told.set()
    for child in children:
        child.join()
    train(5)
    return max(child.exitcode for child in children)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
