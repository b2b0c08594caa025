"""Prints JAX's version, and the name of the XLA module of a function of every name: jax_names.py NAME…."""

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
