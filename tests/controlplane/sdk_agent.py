"""Runs in the SDK's own environment: calls methods of a TrainingClient that lines on stdin name.

Usage: sdk_agent.py KUBECONFIG NAMESPACE KIND. A request is ``{"method", "arguments"}``, an answer
``{"returned"}`` or ``{"raised"}``, one line each. A job is turned into the SDK's model of it, a set
is a list, ``train_func`` names a function of this file.
"""

import json
import sys
import types

from kubeflow.training import TrainingClient
from kubeflow.training.constants import constants
from kubeflow.training.utils import utils


def train(parameters):
    print(f"training for {parameters['epochs']} epochs")


def main() -> None:
    kubeconfig, namespace, kind = sys.argv[1:]
    answers = sys.stdout
    sys.stdout = sys.stderr  # what the SDK prints is no answer
    client = TrainingClient(config_file=kubeconfig, namespace=namespace, job_kind=kind)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            returned = call(client, request["method"], request["arguments"])
            answer = {"returned": client.api_client.sanitize_for_serialization(returned)}
        except Exception as error:  # noqa: BLE001 - whatever it raises is the answer
            answer = {"raised": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def call(client, method, arguments):
    if isinstance(arguments.get("job"), dict):
        model = constants.JOB_PARAMETERS[client.job_kind]["model"]
        response = utils.FakeResponse(arguments["job"])
        arguments["job"] = client.api_client.deserialize(response, model)
    if "expected_conditions" in arguments:
        arguments["expected_conditions"] = set(arguments["expected_conditions"])
    if "train_func" in arguments:
        arguments["train_func"] = globals()[arguments["train_func"]]
    returned = getattr(client, method)(**arguments)
    return list(returned) if isinstance(returned, types.GeneratorType) else returned


if __name__ == "__main__":
    main()
