"""Real training on the real control plane: pods are processes, and nothing of a job is simulated.

Run by ``pytest --training "$(scripts/training)" tests/controlplane/training``; it takes root, Linux
and what ``scripts/training`` installs.
"""
