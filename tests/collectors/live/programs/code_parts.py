"""Holds what the library reads of code objects against what Python states: code_parts.py LIBRARY. In Python 3.9, too.

All code of the standard library that compiles, and functions with names and lines that are hard. It prints how many.
"""

import ctypes
import dis
import os
import sys
import types

READER = ctypes.CDLL(sys.argv[1])
READER.name_of.restype = ctypes.c_char_p
READER.mark_of.restype = ctypes.c_uint64
READER.name_of.argtypes = READER.mark_of.argtypes = [ctypes.c_void_p]
READER.lines_of.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint32), ctypes.c_int]
ADDRESSES = ctypes.pythonapi.PyCode_Addr2Line
ADDRESSES.argtypes = [ctypes.py_object, ctypes.c_int]
HARD = """
def \u00e9t\u00e9_{0}(value): return value
class \u540d\u524d:
    def \U00010400{0}(self): return (lambda: [each
        for each in range(3)])()
{1}
def far_{0}():
    return (
{1}
        far_{0}(
            1,
{1}
            2) + far_{0}(
        3))
"""


class Path(str):
    """A path as some libraries have it, whose characters are elsewhere."""


def all_within(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from all_within(constant)


def read_sources():
    folder = os.path.dirname(os.__file__)
    for where, _, names in sorted(os.walk(folder)):
        if "site-packages" in where or "dist-packages" in where or "/test" in where:
            continue
        for name in sorted(names):
            path = os.path.join(where, name)
            if name.endswith(".py") and os.path.isfile(path):
                with open(path, "rb") as file:
                    yield path, file.read()
    for number in range(200):
        kind = (str, Path)[number % 2]
        yield kind(f"/\u00e9/<{number}>\u20ac\U0001f525"), HARD.format(number, "\n" * number).encode()


def compile_all():
    for path, text in read_sources():
        try:
            yield from all_within(compile(text, path, "exec"))
        except (SyntaxError, ValueError):
            continue


def expected_name(code):
    file = code.co_filename.encode()
    while len(file) > 1023:  # cut between two characters
        file = file.decode()[:-1].encode()
    return b"%s(%d): %s" % (file, code.co_firstlineno, code.co_name.encode())


def check(code):
    count = len(code.co_code) // 2
    lines = (ctypes.c_uint32 * count)()
    READER.lines_of(id(code), lines, count)
    expected = [max(ADDRESSES(code, 2 * each), 0) for each in range(count)]
    assert list(lines) == expected, (code, list(dis.findlinestarts(code)))
    assert READER.name_of(id(code)) == expected_name(code), code
    return READER.mark_of(id(code))


def check_made_again():
    """Code in the memory of code that was let go: of another folder, or with the same function on other lines."""
    seen = {}
    for number in range(2000):
        path = f"/made/{number // 8:04}/model.py"
        text = "def made():\n{}    1\n{}    return 2\n".format("\n" * (number % 8), "\n" * (8 - number % 8))
        space = {}
        exec(compile(text.replace("1", "made()"), path, "exec"), space)  # noqa: S102
        code = space.pop("made").__code__
        assert seen.setdefault((id(code), READER.mark_of(id(code))), number) == number
        del code
    assert len({address for address, _ in seen}) < len(seen)


def main():
    READER.prepare(sys.version_info[1], b"/none/\n")
    check_made_again()
    kept = list(compile_all())
    marks = {(check(code), code.co_name, code.co_filename, code.co_firstlineno) for code in kept}
    print(len(kept), len({mark for mark, *_ in marks}), len(marks))


main()
