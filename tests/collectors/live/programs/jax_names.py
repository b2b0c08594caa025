"""Prints the name of the XLA module of each function that is called as a word is: jax_names.py NAME…; JAX's version first."""

import sys

import jax
import jaxlib


def find_module(name):
    def function(values):
        return values

    function.__name__ = name
    return str(jax.jit(function).lower(1.0).compile().as_text()).split()[1].rstrip(",")


print(jaxlib.__version__)
for each in sys.argv[1:]:
    print(find_module(each))
