"""As paddle.distributed.launch finds its master: who has the address that PADDLE_MASTER names is the one.

It listens once /shared/door is there, until PADDLE_NNODES - 1 others have said who they are; those dial
once, and end where nobody listens yet.
"""

import os
import socket
import time
from pathlib import Path

me = socket.gethostname()
host, _, port = os.environ["PADDLE_MASTER"].rpartition(":")
role = [name for name in ("PADDLE_SERVER_NUM", "PADDLE_TRAINER_NUM") if os.environ.get(name) == "1"]
if host != socket.gethostbyname(me):
    with socket.create_connection((host, int(port))) as line:
        line.sendall(me.encode())
        line.recv(1)
    print(f"{me} {role} was heard by {host}")
else:
    while not Path("/shared/door").exists():
        time.sleep(0.1)
    heard = set()
    with socket.create_server((host, int(port))) as listener:
        while len(heard) < int(os.environ["PADDLE_NNODES"]) - 1:
            with listener.accept()[0] as line:
                if said := line.recv(
                    100
                ):  # nothing: somebody has looked whether there is a listener
                    heard.add(said.decode())
                    line.sendall(b"!")
    print(f"{me} {role} of {os.environ['PADDLE_JOB_ID']} heard {sorted(heard)}")
