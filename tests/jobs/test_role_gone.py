"""A role that is scaled to nothing leaves the status; the status is written once."""

from __future__ import annotations

from tests.jobs.builders import KINDS, NOW, merged, of_kind, written


def test_status_of_a_role_of_no_replicas_any_more_is_taken_away_once():
    kind, roles = KINDS["pytorch"]
    manifest = of_kind(kind, roles)
    manifest = written(manifest, kind.reconcile(manifest, [], frozenset(), NOW))
    none = {"spec": {kind.facts.specs_key: {"Worker": {"replicas": 0}}}}
    manifest = merged(manifest, none)
    manifest = written(manifest, kind.reconcile(manifest, [], frozenset(), NOW + 1))
    assert kind.reconcile(manifest, [], frozenset(), NOW + 2).status is None
    assert list(manifest["status"]["replicaStatuses"]) == ["Master"]
