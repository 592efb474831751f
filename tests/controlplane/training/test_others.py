"""JAXJobs and XGBoostJobs that train through Muster and kube-scheduler."""

from __future__ import annotations

from pathlib import Path

from extender.core import api
from extender.runtime import Service
from tests.controlplane.training import jobs
from tests.controlplane.training.kubelet import ProcessKubelet
from tests.controlplane.world import World


async def test_jax_processes_find_each_other(
    world: World, muster: Service, kubelet: ProcessKubelet, environment: Path
) -> None:
    await world.nodes("n1", "n2", cpu="2")
    pod = jobs.template("jax", [str(environment), "/programs/jax_sum.py"])
    body = jobs.job("line", "jaxReplicaSpecs", {"Worker": (2, pod)})
    await world.client.create(api.JAX_JOBS, world.namespace, body)
    await world.until_object(api.JAX_JOBS, "line", jobs.holds("Succeeded"), "its end", patience=90)
    for index in range(2):
        said = kubelet.log(f"line-worker-{index}")
        assert f"process {index} of 2 ended: weight 3.00 bias 1.00" in said, said


async def test_xgboost_trains_one_model(
    world: World, muster: Service, kubelet: ProcessKubelet, environment: Path
) -> None:
    await world.nodes("n1", "n2", cpu="2")
    pod = jobs.template("xgboost", [str(environment), "/programs/xgb_train.py"])
    body = jobs.job("trees", "xgbReplicaSpecs", {"Master": (1, pod), "Worker": (2, pod)})
    await world.client.create(api.XGBOOST_JOBS, world.namespace, body)
    await world.until_object(
        api.XGBOOST_JOBS, "trees", jobs.holds("Succeeded"), "its end", patience=90
    )
    names = ("trees-master-0", "trees-worker-0", "trees-worker-1")
    said = [kubelet.log(name).strip().splitlines()[-1] for name in names]
    assert all("of 3 ended: " in line for line in said), said
    # One model: all report the same loss.
    assert len({line.rpartition(" ")[2] for line in said}) == 1, said
