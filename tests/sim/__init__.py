"""Tests of the simulated API server, scheduler, kubelet and fleet."""
