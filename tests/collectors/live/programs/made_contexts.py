"""Operators without PyTorch in any Python: made_contexts.py SCENARIO COUNT SOURCE MODE. It waits for a line.

It runs in Python 3.9, too. Each scenario makes COUNT operators aten::made, each with aten::inner in it.
"""

import asyncio
import atexit
import ctypes
import gc
import glob
import os
import sys
import threading
import time
import warnings

SOURCE = ctypes.CDLL(sys.argv[3])
HELD = ctypes.PyDLL(sys.argv[3])  # calls keep the interpreter's lock
LIBRARY = ctypes.CDLL(os.environ["DEEPPROF_INJECT"])
CALLED = ctypes.CFUNCTYPE(None)


def operate(source=SOURCE):
    source.made_run(b"aten::made", b"aten::inner")


def plain(count):
    for _ in range(count):
        operate()


def held(count):
    for _ in range(count):
        operate(HELD)


def threads(count):
    some = [threading.Thread(target=plain, args=(count // 8,)) for _ in range(8)]
    for each in some:
        each.start()
    for each in some:
        each.join()


def exceptions(count):
    for number in range(count):
        try:
            try:
                raise KeyError(number)
            finally:
                operate()
        except KeyError as error:
            if error.args != (number,):
                raise


def yielding(count):
    for number in range(count):
        operate()
        yield number


def generators(count):
    assert sum(yielding(count)) == sum(range(count))


class Ending:
    """Runs an operator as it is given up, while the frame that held it is taken down."""

    def __del__(self):
        operate()


def hold():
    held = [Ending(), lambda: held]  # one in a cycle, which the collector finds
    return [Ending()][0] is held


def finalizers(count):
    for _ in range(count // 2):
        hold()
    gc.collect()


def traced(count):
    def trace(*_):
        return trace

    sys.settrace(trace)
    plain(count)
    sys.settrace(None)


async def wait(count):
    for _ in range(count):
        await asyncio.sleep(0)
        operate()


def coroutines(count):
    async def wait_for_all():
        await asyncio.gather(*(wait(count // 8) for _ in range(8)))

    asyncio.run(wait_for_all())


def descend(levels):
    if levels:
        descend(levels - 1)
    else:
        operate()


def recursion(count):
    sys.setrecursionlimit(5000)
    for number in range(count):
        descend(number % 2000)


def nested(count):
    inner = CALLED(operate)
    for _ in range(count):
        SOURCE.made_call(b"Outer", inner)


def opened():
    SOURCE.made_begin(b"a range")


def ranges(count):
    for _ in range(count):
        opened()
        operate()
        SOURCE.made_end()


def ranges_in_ranges(count):
    for _ in range(count):
        opened()
        opened()
        operate()
        SOURCE.made_end()
        SOURCE.made_end()


def made_code(count):
    for number in range(count):
        space = {"operate": operate}
        exec(f"def made_{number % 10}():\n    operate()\n", space)  # noqa: S102
        space[f"made_{number % 10}"]()


def resident_nbytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def large_code(count):
    """Code that is made anew each time, with 50 kB of its own, is let go."""
    operate()
    before = resident_nbytes()
    for number in range(1, count):
        space = {"operate": operate}
        exec(f"def made():\n    operate()\n    return {str(number) + '-' * 50_000!r}\n", space)  # noqa: S102
        space.pop("made")()
    assert resident_nbytes() - before < 25_000 * count


def full_names(count):
    """The library has no room for a name, and a range begins in a function that has none."""
    operate()
    for number in range(1 << 15):
        LIBRARY.deepprof_push(b"%01024d" % number)
        LIBRARY.deepprof_pop()
    for number in range(100):  # what is left is less than a label
        space = {"operate": operate}
        exec(f"def made_{'0' * (900 if number < 30 else 20)}{number}():\n    operate()\n", space)  # noqa: S102
        space.popitem()[1]()
    for _ in range(count):
        opened()
        SOURCE.made_end()


def late_settings(count):
    """The environment is the job's own once it runs."""
    os.environ["DEEPPROF_CONTEXTS_MOST"] = "1"
    plain(count)


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
    """Threads that run operators while the interpreter ends."""
    for _ in range(4):
        threading.Thread(target=plain, args=(10**9,), daemon=True).start()
    plain(count)
    time.sleep(0.05)


def steps(count):
    """Iterations of COUNT operators after an optimizer's step, until there is another line."""
    more = threading.Thread(target=sys.stdin.readline)
    more.start()
    while more.is_alive():
        SOURCE.made_run(b"Optimizer.step#SGD.step", b"aten::add_")
        plain(count)


def iterate(count):
    SOURCE.made_run(b"Optimizer.step#SGD.step", b"aten::add_")
    plain(count)


def short_threads(count):
    """As `steps`, with a thread for every iteration."""
    more = threading.Thread(target=sys.stdin.readline)
    more.start()
    while more.is_alive():
        each = threading.Thread(target=iterate, args=(count,))
        each.start()
        each.join()


def native(count):
    """This and the next need SOURCE to be native_calls.cpp."""
    for _ in range(count):
        SOURCE.native_nested()


def native_callback(count):
    inner = CALLED(SOURCE.native_nested)
    for _ in range(count):
        SOURCE.made_call(b"Outer", inner)


def native_threads(count):
    some = [threading.Thread(target=native, args=(count // 8,)) for _ in range(8)]
    for each in some:
        each.start()
    for each in some:
        each.join()


def native_lasting(count):
    """Threads that are there until the process ends, and end with it."""
    last, ended = threading.Barrier(9), threading.Event()

    def run():
        native(count // 8)
        last.wait()
        ended.wait()

    for _ in range(8):
        threading.Thread(target=run, daemon=True).start()
    last.wait()
    LIBRARY.deepprof_finish()
    os._exit(0)


def native_thread(count):
    SOURCE.native_thread(count)


def native_recursion(count):
    for number in range(count):
        SOURCE.native_descend(number % 4)


def native_deep(count):
    for _ in range(count):
        SOURCE.native_descend(600)
        SOURCE.native_descend(3000)


def native_thrown(count):
    for _ in range(count):
        SOURCE.native_thrown()


def native_hidden(count):
    for _ in range(count):
        SOURCE.native_hidden()


def native_switched(count):
    for _ in range(count):
        SOURCE.native_switched()


def native_loading(count):
    """The loader's lock is kept while another thread begins operators in functions that are new."""
    os.environ["NATIVE_RUN"] = hex(ctypes.cast(SOURCE.native_nested, ctypes.c_void_p).value)
    ctypes.CDLL(os.environ["NATIVE_LIBRARIES"])
    native(count - 1)


def native_reloaded(count):
    """A library is unloaded, and another loaded, until one is at the same place."""
    import _ctypes

    first, second = os.environ["NATIVE_LIBRARIES"].split(":")
    for _ in range(100):
        library = ctypes.CDLL(first)
        place = ctypes.cast(library.native_run, ctypes.c_void_p).value
        for _ in range(count):
            library.native_run(SOURCE.native_nested)
        _ctypes.dlclose(library._handle)
        library = ctypes.CDLL(second)
        if place == ctypes.cast(library.native_run, ctypes.c_void_p).value:
            break
        _ctypes.dlclose(library._handle)
    else:
        sys.exit("the second library never came to be in the place of the first")
    for _ in range(count):
        library.native_run(SOURCE.native_nested)


def native_libraries(count):
    """As many libraries as operators, each of which runs one."""
    libraries = [ctypes.CDLL(each) for each in sorted(glob.glob(os.environ["NATIVE_LIBRARIES"]))]
    for library in libraries[:count]:
        library.native_run(SOURCE.native_nested)


def interpreters(count):
    """Operators while there is another interpreter, which runs Python itself."""
    try:
        import _interpreters as others  # 3.13 and later
    except ImportError:
        import _xxsubinterpreters as others
    other = others.create()
    plain(count // 2)
    others.run_string(other, "import json; json.dumps([1])")
    plain(count - count // 2)
    others.destroy(other)


def other_code(count):
    """Code of other names and files, in the memory of what was given back."""
    for number in range(count):
        space = {"operate": operate}
        text = f"def made_{number % 7}():\n    operate()\n"
        exec(compile(text, f"<made {number:06}>", "exec"), space)  # noqa: S102
        space.popitem()[1]()


def locked(count):
    """New paths under a lock of the program's, for which a thread waits that has the interpreter's."""
    for number in range(20):
        space = {"run": SOURCE.made_run_locked}
        exec(f"def made_{number}():\n    run(b'aten::made', b'aten::inner')\n", space)  # noqa: S102
        thread = threading.Thread(target=space.popitem()[1])
        thread.start()
        SOURCE.made_wait_locked()
        HELD.made_contend()
        thread.join()
    plain(count - 20)


if __name__ == "__main__":
    LIBRARY.deepprof_contexts.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int]
    LIBRARY.deepprof_contexts(int(sys.argv[4]), b"/none/\n", 1)
    assert SOURCE.made_start(os.environ["DEEPPROF_INJECT"].encode()) == 0
    assert LIBRARY.deepprof_operators(1) == 0
    atexit.register(LIBRARY.deepprof_finish)  # as the hook does
    sys.stdin.readline()
    globals()[sys.argv[1]](int(sys.argv[2]))
