"""An MPIJob whose launcher starts its ranks by ssh on the workers that the hostfile names."""

from __future__ import annotations

import pytest

from extender.core import api
from extender.core.objects import Manifest
from extender.runtime import Service
from tests.controlplane.training import jobs
from tests.controlplane.training.kubelet import ProcessKubelet
from tests.controlplane.world import World

#: All pods share the machine's network: each listens on its own address, off the machine's own port.
SSH = "printf 'Host *\\n Port 2222\\n StrictHostKeyChecking no\\n' >/etc/ssh/ssh_config.d/pods.conf"
SERVE = "mkdir -p /run/sshd; exec /usr/sbin/sshd -De -p 2222 -o ListenAddress=$POD_IP"
TRAIN = (
    f"{SSH}; exec mpirun --allow-run-as-root -np 2 --mca btl_tcp_if_include lo"
    " --mca oob_tcp_if_include lo --mca plm_rsh_no_tree_spawn 1 /usr/bin/python3 /programs/mpi_line.py"
)


def pod(container: str, script: str) -> Manifest:
    made = jobs.template(container, ["/bin/sh", "-c", script])
    address = {"fieldRef": {"fieldPath": "status.podIP"}}
    made["spec"]["containers"][0]["env"].append({"name": "POD_IP", "valueFrom": address})
    return made


@pytest.mark.usefixtures("mpi_rights")
async def test_mpirun_starts_its_ranks_on_the_workers(
    world: World, muster: Service, kubelet: ProcessKubelet
) -> None:
    await world.nodes("n1", "n2", cpu="2")
    roles = {"Launcher": (1, pod("mpi", TRAIN)), "Worker": (2, pod("mpi", SERVE))}
    body = jobs.job("line", "mpiReplicaSpecs", roles, slotsPerWorker=1)
    await world.client.create(api.MPI_JOBS, world.namespace, body)
    await world.until_object(api.MPI_JOBS, "line", jobs.holds("Succeeded"), "its end", patience=90)
    said = "".join(kubelet.log(name) for name in kubelet.boxes if "launcher" in name)
    assert "2 ranks on line-worker-0 line-worker-1: weight 3.00 bias 1.00" in said, said
