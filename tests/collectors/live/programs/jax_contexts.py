"""Programs of JAX to collect contexts of: jax_contexts.py SCENARIO COUNT [TRACE]. It waits for a line.

With TRACE, jax.profiler records the scenario and writes it there.
"""

import atexit
import copy
import functools
import gc
import multiprocessing
import os
import sys
import threading
import warnings
import weakref

if "TORCH_FIRST" in os.environ:
    import torch  # noqa: F401

import jax
import jax.numpy as jnp


def loss(weights, inputs):
    return jnp.mean(jnp.tanh(inputs @ weights) ** 2)


@jax.jit
def train_step(weights, inputs):
    return weights - 0.1 * jax.grad(loss)(weights, inputs)


@functools.partial(jax.jit, donate_argnums=0)
def add_one(values):
    return values + 1


@jax.custom_vjp
def square(values):
    return values * values


square.defvjp(lambda values: (square(values), values), lambda values, gradient: (2 * values * gradient,))


@jax.jit
def scanned(values):
    return jax.lax.scan(lambda carry, _: (jnp.sin(carry), None), square(values), None, length=3)[0]


@jax.jit
def fails(values):
    raise KeyError(values.shape)


class Layer:
    """A jitted method."""

    @functools.partial(jax.jit, static_argnums=0)
    def apply(self, values):
        return values * 3


def make_inputs():
    return jnp.ones((4, 4)), jnp.ones((8, 4))


def train(count):
    weights, inputs = make_inputs()
    total = weights
    for number in range(count):
        weights = train_step(weights, inputs)
        total = total + weights
        if number % 2:
            jnp.sin(total)
    return total


def kinds(count):
    """Each kind of call on its own line."""
    weights, inputs = make_inputs()
    layer, compiled = Layer(), train_step.lower(weights, inputs).compile()
    for _ in range(count):
        inputs = add_one(inputs)
        scanned(weights)
        layer.apply(weights)
        compiled(weights, inputs)
        jax.jit(lambda values: values - 1)(weights)
        jax.vmap(train_step, (None, 0))(weights, inputs[:, None])
        jax.grad(lambda values: jnp.sum(scanned(values)))(weights)


def threads(count):
    train(2)
    some = [threading.Thread(target=train, args=(count // 4,)) for _ in range(4)]
    for each in some:
        each.start()
    for each in some:
        each.join()


def exceptions(count):
    caught = 0
    for _ in range(count):
        try:
            fails(jnp.ones(3))
        except KeyError as error:
            caught += error.args == ((3,),)
    assert caught == count
    train(count)


def same(count):
    """Jitted functions are what they are without the hook."""
    weights, inputs = make_inputs()
    kind = type(train_step)
    assert kind.__name__ == "PjitFunction"
    assert type(add_one) is type(jax.jit(loss)) is type(Layer.__dict__["apply"]) is kind
    assert weakref.ref(train_step)() is train_step
    assert train_step.__name__ == "train_step"
    assert train_step.__wrapped__.__code__.co_name == "train_step"
    assert jax.tree.leaves({"function": train_step}) == [train_step]
    assert "jit_train_step" in train_step.lower(weights, inputs).as_text()
    assert train_step.eval_shape(weights, inputs).shape == (4, 4)
    assert len(train_step.trace(weights, inputs).jaxpr.eqns) > 1
    train(count)
    assert train_step._cache_size() == 1
    train_step.clear_cache()
    assert train_step._cache_size() == 0
    assert (copy.copy(train_step)(weights, inputs) == train_step(weights, inputs)).all()
    given = jnp.ones(5)
    add_one(given)
    assert given.is_deleted()
    with jax.disable_jit():
        assert add_one(1.0) == 2


def read_resident_nbytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def make_and_drop(count):
    """Of twenty functions one is called: to compile lasts long."""
    weights, _ = make_inputs()
    for number in range(count):

        def made(values):
            return values

        made.__name__ = f"made_{number % 7}"
        function = jax.jit(made)
        if number % 20 == 0:
            function(weights)
        del made, function
    jax.clear_caches()
    gc.collect()


def dropped(count):
    """Functions that are made and dropped, each at an address where others have been."""
    make_and_drop(count)
    before = read_resident_nbytes()
    make_and_drop(count)
    print(read_resident_nbytes() - before)


def forks(count):
    warnings.simplefilter("ignore")
    train(count)
    child = os.fork()
    if not child:
        os._exit(0 if train_step._cache_size() == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0


def spawns(count):
    """A child that trains, and one that helps: a daemon."""
    train(count)
    for daemon in (False, True):
        child = multiprocessing.get_context("spawn").Process(target=train, args=(count,), daemon=daemon)
        child.start()
        child.join()
        assert child.exitcode == 0


def leaves(count):
    train(count)
    os._exit(3)


def dies(count):
    train(count)
    os.kill(os.getpid(), 9)


def at_exit(count):
    """A program that computes as it ends."""
    atexit.register(train, count)


def run_torch(count):
    import torch

    model = torch.nn.Linear(4, 4)
    for _ in range(count):
        model(torch.ones(2, 4)).sum().backward()


def with_torch(count):
    """PyTorch comes after JAX, and both are used in turn."""
    for _ in range(2):
        run_torch(count // 2)
        train(count // 2)


def record(scenario, count, folder):
    with jax.profiler.trace(folder):
        scenario(count)


if __name__ == "__main__":
    sys.stdin.readline()
    SCENARIO, COUNT = globals()[sys.argv[1]], int(sys.argv[2])
    if len(sys.argv) > 3:
        record(SCENARIO, COUNT, sys.argv[3])
    else:
        SCENARIO(COUNT)
