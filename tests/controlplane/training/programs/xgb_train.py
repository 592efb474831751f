"""An XGBoostJob: the master runs the tracker, and all train one model on their parts of the data."""

import os

import numpy as np
import xgboost
from xgboost import collective
from xgboost.tracker import RabitTracker

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
tracker = None
if rank == 0:
    import socket

    tracker = RabitTracker(n_workers=world, host_ip=socket.gethostbyname(address), port=port)
    tracker.start()
with collective.CommunicatorContext(
    dmlc_tracker_uri=address,
    dmlc_tracker_port=port,
    dmlc_task_id=str(rank),
    dmlc_retry=30,
):
    random = np.random.default_rng(collective.get_rank())
    inputs = random.normal(size=(500, 2))
    data = xgboost.DMatrix(inputs, label=(inputs[:, 0] > 0).astype(float))
    result = {}
    xgboost.train(
        {"objective": "binary:logistic", "nthread": 1},
        data,
        10,
        evals=[(data, "train")],
        evals_result=result,
        verbose_eval=False,
    )
    loss = result["train"]["logloss"][-1]
    print(
        f"rank {collective.get_rank()} of {collective.get_world_size()} ended: {loss:.3f}",
        flush=True,
    )
if tracker is not None:
    tracker.wait_for()
