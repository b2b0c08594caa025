"""The function that a general kernel applies: `vectorized_elementwise_kernel` adds, multiplies or copies.

PyTorch and others write one kernel for all elementwise operations, one for all reductions and one for lists of tensors.
What it computes is a template argument: a functor, or a lambda in a function with its own name.
"""

from __future__ import annotations

import re
from functools import lru_cache

from deepprof.collectors.names.short import shorten

MOST_CHARS = 4096  # of a name: arguments that come later are repeated ones
# A functor by its name, a function object of the standard library, or the function around a lambda.
_FUNCTION = re.compile(
    r"\b(?:[A-Za-z]\w*[Ff]unctor\w*|[A-Z]\w+Ops\b|(?<=std::)(?:plus|minus|multiplies|divides|negate|less|greater)\b"
    r"|[A-Za-z_]\w*(?=(?:<[^<>()]{0,200}>)?\((?!\))))"
)
_OPERATION = re.compile(r"OpFunctor<[^<>]{0,200}>,\s*(?:\w+::)*(\w+)")  # of a list of tensors, given beside its functor
# These only hand over to the function that is named in their own arguments, or are none.
_WRAPPER = re.compile(
    r"(?:[AB]?[UB]n?ary|Binary|Ternary)(?:Op\w*)?Functor|gpu_\w*kernel\w*|func_wrapper\w*|launch_\w*kernel\w*"
    r"|'?lambda\d*|operator|decltype|anonymous|unnamed"
)
_AFFIX = re.compile(
    r"^(?:launch|gpu|op)_|CUDA|Cuda|_?cuda(?![a-z])|_?hip(?![a-z])|_?[Ff]unctor_?|_?kernel(?![a-z])|Kernel|_?impl(?![a-z])"
    r"|Impl|Internal|Ops$"
)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@lru_cache(maxsize=4096)
def shorten_with_function(name: str) -> str:
    """Return the short name of a kernel, and the function that it applies: "vectorized_elementwise_kernel (add)"."""
    short = shorten(name)
    function = find_function(name, short)
    return f"{short} ({function})" if function else short


def find_function(name: str, short: str) -> str:
    """Return the function that a kernel is given as a template argument, in lower case: "add"; "" where there is none.

    `short` is the kernel's short name. The words around the function's ("Functor", "kernel_impl", "CUDA") are left out.
    """
    _, opened, arguments = name[:MOST_CHARS].partition(f"{short.partition('<')[0]}<")
    if not opened:
        return ""
    found = (match[0] for match in _FUNCTION.finditer(arguments))
    own = [each for each in found if not _WRAPPER.fullmatch(each)] or _OPERATION.findall(arguments)
    named = list(dict.fromkeys(text for each in own if (text := _strip(each)) and text not in short.lower()))
    return " ".join(named[: 2 if named[:1] and named[0].startswith("pointwise") else 1])


def _strip(function: str) -> str:
    """Return a function's own name in lower case, words separated by underscores."""
    return _HUMP.sub("_", _AFFIX.sub("", function)).strip("_").lower()
