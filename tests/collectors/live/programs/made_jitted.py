"""Functions made as JAX makes them, without JAX: made_jitted.py SCENARIO COUNT SOURCE MODE. It waits for a line.

An object of functools.partial names the function that CPython calls, as a jitted function does, and so does a function
of Python. Each scenario calls COUNT times what is called jit_made. SOURCE is not used.
"""

import atexit
import ctypes
import functools
import gc
import os
import sys
import threading
import time
import warnings

LIBRARY = ctypes.CDLL(os.environ["DEEPPROF_INJECT"])
TAKE = ctypes.PyDLL(os.environ["DEEPPROF_INJECT"]).deepprof_computation  # calls keep the interpreter's lock
TAKE.argtypes = [ctypes.py_object, ctypes.c_char_p]


def compute(values, *more):
    return values, more


def make(name=b"jit_made", function=compute):
    made = functools.partial(function)
    assert TAKE(made, name) == 0
    return made


def plain(count):
    made = make()
    for number in range(count):
        assert made(number, 1) == (number, (1,))


def nested(count):
    inner = make(b"jit_inner")
    made = make(function=lambda: inner(5))
    for _ in range(count):
        assert made() == (5, ())


def recursion(count):
    """Deeper than what is kept open."""

    def descend(levels):
        return made(levels - 1) if levels > 1 else 0

    made = make(function=descend)
    sys.setrecursionlimit(10_000)
    assert made(count) == 0


def exceptions(count):
    made, caught = make(), 0
    for _ in range(count):
        try:
            made()
        except TypeError as error:
            caught += "values" in str(error)
    assert caught == count


def threads(count):
    def run():
        plain(count // 8)

    some = [threading.Thread(target=run) for _ in range(8)]
    for each in some:
        each.start()
    for each in some:
        each.join()


def two_types(count):
    other = functools.wraps(compute)(lambda values: values)
    assert TAKE(other, b"jit_made") == 0
    for number in range(count // 2):
        assert list(map(other, [number])) == [number]
    plain(count - count // 2)


def refused(count):
    """A third type, one whose calls are of another kind, and an object whose pointer is not there."""
    two_types(count)
    gone = functools.partial(compute)
    assert TAKE(len, b"jit_other") == TAKE(object(), b"jit_other") == TAKE(int, b"jit_other") == -1
    assert gone(1) == (1, ()) and len("ab") == 2  # noqa: PT018


def too_old(count):
    made = functools.partial(compute)
    assert TAKE(made, b"jit_made") == -1
    assert made(count) == (count, ())


def reused(count):
    """Objects at addresses where others were: those not handed over are not collected, and none has another's name."""
    made = make()
    for number in range(count):
        made(number)
        names = [b"jit_%d" % (number % 10), b"jit_%d" % ((number + 5) % 10)]
        some = [make(name) for name in names]
        for each in some:
            each(1)
        del some, each
        foreign = [functools.partial(compute) for _ in range(4)]
        for each in foreign:
            each(1)
        del foreign, each


def again(count):
    """Handed over twice, it is called as the second time."""
    made = make(b"jit_before")
    made(1)
    assert TAKE(made, b"jit_made") == 0
    for number in range(count):
        made(number)


def many(count):
    """More than are kept by name."""
    made = make()
    others = [make(b"jit_other") for _ in range(1 << 15)]
    for number in range(count):
        made(number)
        others[-1](number)


def forks(count):
    warnings.simplefilter("ignore")  # from 3.12 on: the library's thread is one
    plain(count)
    child = os.fork()
    if not child:
        plain(count)  # no one collects here
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def leaves(count):
    plain(count)
    os._exit(3)


def dies(count):
    plain(count)
    os.kill(os.getpid(), 9)


def shutdown(count):
    """Threads that compute while the interpreter ends, and objects that outlive it."""
    for _ in range(4):
        threading.Thread(target=plain, args=(10**9,), daemon=True).start()
    sys.kept = [make() for _ in range(10)]
    plain(count)
    time.sleep(0.05)


def resident_nbytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def dropped(count):
    """Objects that are made and dropped use nothing."""
    before = 0
    for number in range(50 * count):
        make(b"jit_%d" % (number % 100))
        if number == count:
            before = resident_nbytes()
    gc.collect()
    assert resident_nbytes() - before < 1 << 20
    plain(count)


def paused(count):
    """While another profiler runs, nothing is collected."""
    plain(count // 2)
    LIBRARY.deepprof_pause()
    plain(count)
    LIBRARY.deepprof_resume()
    sys.stdin.readline()
    plain(count - count // 2)


if __name__ == "__main__":
    LIBRARY.deepprof_jax.argtypes = [ctypes.c_int, ctypes.c_char_p]
    LIBRARY.deepprof_jax(int(sys.argv[4]), b"/none/\n")
    assert LIBRARY.deepprof_operators(1) == 0
    atexit.register(LIBRARY.deepprof_finish)  # as the hook does
    sys.stdin.readline()
    globals()[sys.argv[1]](int(sys.argv[2]))
