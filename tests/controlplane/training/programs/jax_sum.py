"""Processes of a JAXJob find each other and train a line, each on its part of the data."""

import os

import jax

jax.config.update("jax_cpu_collectives_implementation", "gloo")
address = f"{os.environ['COORDINATOR_ADDRESS']}:{os.environ['COORDINATOR_PORT']}"
jax.distributed.initialize(address, int(os.environ["NUM_PROCESSES"]), int(os.environ["PROCESS_ID"]))
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

mesh = Mesh(np.array(jax.devices()), ("data",))
rows = NamedSharding(mesh, PartitionSpec("data"))
mine = np.random.default_rng(jax.process_index()).normal(size=(64, 1)).astype("float32")
inputs = jax.make_array_from_process_local_data(rows, mine)


@jax.jit
def step(weights, inputs):
    def loss(weights):
        return ((inputs * weights[0] + weights[1] - (3 * inputs + 1)) ** 2).mean()

    value, slope = jax.value_and_grad(loss)(weights)
    return weights - 0.1 * slope, value


weights = jnp.zeros(2)
for _ in range(100):
    weights, value = step(weights, inputs)
weight, bias = (float(each) for each in weights)
print(
    f"process {jax.process_index()} of {jax.process_count()} ended:"
    f" weight {weight:.2f} bias {bias:.2f} loss {float(value):.6f}",
    flush=True,
)
