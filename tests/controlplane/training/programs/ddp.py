"""Trains a line with DistributedDataParallel over gloo; goes on from the checkpoint where there is one.

Arguments: checkpoint file, steps, seconds a step. The file ``<checkpoint>.stop-RANK`` makes that
rank kill itself once, after it was seen.
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

path, steps, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
first = 0
if os.path.exists(path):
    saved = torch.load(path)
    model.load_state_dict(saved["model"])
    first = saved["step"]
print(f"rank {rank} of {world} starts at step {first}", flush=True)
inputs = torch.randn(64, 1, generator=torch.Generator().manual_seed(rank))
for step in range(first, steps):
    loss = ((model(inputs) - (3 * inputs + 1)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        torch.save({"model": model.state_dict(), "step": step + 1}, path + ".new")
        os.replace(path + ".new", path)
        print(f"step {step + 1} loss {loss.item():.6f}", flush=True)
    time.sleep(pause)
total = torch.ones(1)
dist.all_reduce(total)
weight, bias = (each.item() for each in model.parameters())
print(f"rank {rank} ended: {int(total)} ranks, weight {weight:.2f} bias {bias:.2f}", flush=True)
