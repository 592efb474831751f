"""Rank 0 listens once /shared/door is there, until all others have said who they are; they dial once.

Unlike torch.distributed, which tries again: a program that ends where nobody listens yet.
"""

import os
import socket
import time
from pathlib import Path

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank:
    with socket.create_connection(address) as line:
        line.sendall(bytes([rank]))
        line.recv(1)
    print(f"rank {rank} was heard")
else:
    while not Path("/shared/door").exists():
        time.sleep(0.1)
    heard = set()
    with socket.create_server(address) as listener:
        while len(heard) < size - 1:
            with listener.accept()[0] as line:
                if said := line.recv(1):  # nothing: somebody has looked whether there is a listener
                    heard.add(said[0])
                    line.sendall(said)
    print(f"rank 0 heard {sorted(heard)}")
