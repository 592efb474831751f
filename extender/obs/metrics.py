"""Every metric that Muster exports, in one place; none has a label per pod, job or node.

A :class:`Metrics` owns its registry, so that a process (or a test) may hold several.
"""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST

#: Content-Type of :meth:`Metrics.render`.
CONTENT_TYPE = CONTENT_TYPE_LATEST

#: Seconds. /filter must answer in milliseconds; /bind may be held for minutes.
_FAST = (0.0002, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0)
#: Seconds that a gang may wait for its turn: hours are nothing unusual.
_LONG = (0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)
_SLOW = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


class Metrics:
    """The metrics of one process, named ``muster_*``, and the registry they are in."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        # process_*: memory, CPU seconds, open files.
        ProcessCollector(registry=registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"muster_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"muster_{name}", text, labels, registry=registry)

        def seconds(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(
                f"muster_{name}_seconds", text, labels, buckets=buckets, registry=registry
            )

        # The extender. verb: filter, prioritize, preempt, bind.
        self.verb_seconds = seconds("verb", "Time to answer a verb, bind excepted.", _FAST, "verb")
        self.bind_seconds = seconds("bind", "Time from /bind asked to its answer.", _SLOW)
        #: result: passed, held, refused, bound, error, not_leader.
        self.verb_results = counter("verb_results", "Answers of the verbs.", "verb", "result")
        #: verb: as above, or none: what is no HTTP, on any port.
        self.malformed = counter("malformed_bodies", "Extender requests not understood.", "verb")
        #: result: ok, failed.
        self.tls_reloads = counter("tls_reloads", "Changed certificates read again.", "result")

        #: verdict: allowed, no_token, unknown_token, forbidden, no_answer, busy.
        self.page_access = counter(
            "page_access", "Requests for metrics and debug pages on the admin port.", "verdict"
        )

        # The API. kind: the resource's kind.
        self.events_in = counter("events_in", "Watch and list events decoded.", "kind", "type")
        self.decode_errors = counter("decode_errors", "Objects that could not be decoded.", "kind")
        self.nulls_stripped = counter(
            "nulls_stripped", "Objects decoded only after nulls were dropped.", "kind"
        )
        #: cause: ended, gone, unreachable, refused, garbage.
        self.watch_restarts = counter("watch_restarts", "Watches begun again.", "kind", "cause")
        self.lists = counter("lists", "Complete lists.", "kind")
        self.token_reloads = counter("credential_reloads", "Credentials read again.", "result")

        #: verb: get, post, put, patch, delete, watch. code: the HTTP status, 0 for no answer.
        self.api_requests = counter(
            "api_requests", "Requests to the API server, watches begun included.", "verb", "code"
        )
        self.api_seconds = seconds(
            "api_request", "Time to the whole answer, of a watch to its head.", _SLOW, "verb"
        )

        #: kind: Bind, Create, Patch, Delete. result: ok, refused, unknown, not_leader.
        self.commands = counter("commands", "Commands carried out.", "kind", "result")
        #: code: the HTTP status that was retried, 0 for no answer.
        self.retries = counter("command_retries", "Commands tried again.", "kind", "code")
        self.command_seconds = seconds(
            "command", "Time from a command's first try to its result.", _SLOW, "kind"
        )
        self.commands_waiting = gauge("commands_waiting", "Commands not yet sent.")
        self.commands_running = gauge("commands_running", "Requests of commands in flight.")
        #: result: created, counted, limited, failed.
        self.notices = counter("notices", "Kubernetes Events by what became of them.", "result")

        # Leadership.
        self.leader = gauge("leader", "1 while this replica leads.")
        self.leader_epoch = gauge("leader_epoch", "Epoch of the last leadership.")
        #: result: ok, refused, unreachable.
        self.lease_renewals = counter("lease_renewals", "Tries to renew the Lease.", "result")

        # The loop.
        self.ready = gauge("ready", "1 once caches are synced and kernels compiled.")
        self.turn_seconds = seconds(
            "turn", "Time of one turn of the loop: /filter is not answered meanwhile.", _FAST
        )
        self.queue_length = gauge("queue_length", "Events that the loop has not applied yet.")
        #: phase: as `muster explain` says it.
        self.gangs = gauge("gangs", "Gangs by phase.", "phase")
        self.nodes_avoided = gauge("nodes_avoided", "Nodes on which several gangs have failed.")
        #: reason: the code of reasons.py that a gang says; only gangs that wait.
        self.gangs_waiting = gauge("gangs_waiting", "Gangs that wait, by reason.", "reason")
        self.waiting_since = gauge(
            "oldest_waiting_timestamp_seconds",
            "Since when the gang waits that has waited longest (seconds since 1970); 0: none does.",
        )
        #: reason: as above; counted when a gang is refused for another reason than before.
        self.refusals = counter("refusals", "Plans that were refused, by reason.", "reason")
        self.hold_seconds = seconds(
            "hold", "Time that a gang waited for its plan, from its first refusal.", _LONG
        )
        self.placement_seconds = seconds(
            "placement", "Time from a gang's plan to its being bound whole.", _SLOW
        )
        #: what: plans, rollbacks, evidence, replanned_members, bind_retries and the like.
        self.core = counter("core", "What the core counted.", "what")
        self.plan_seconds = seconds(
            "plan", "Time of a step of the core in which gangs were planned.", _FAST
        )
        self.barrier_seconds = seconds(
            "barrier", "Time from a gang's first arrival at /bind to its commit.", _SLOW
        )
        self.evidence = gauge("evidence", "Node and shape pairs that kube-scheduler refused.")
        self.invariant_violations = counter(
            "invariant_violations", "Faults that verify() found.", "invariant"
        )
        # `muster agent`. source: nvml, sysfs, podresources, annotation.
        self.agent_lacks = counter(
            "agent_lacks", "Fields that a node's agent could no longer read.", "source"
        )
        #: result: ok, refused, later (changed, but written too recently).
        self.agent_writes = counter("agent_writes", "Writes of a node's annotations.", "result")
        self.record_lost = counter(
            "record_lost_turns", "Turns that the log of `serve --record` lacks."
        )

        self._begin_at_zero()

    def _begin_at_zero(self) -> None:
        """Prometheus sees no increase in a counter that appears with its first count, so those that
        alerts look at are there from the start.
        """
        for verb in ("filter", "prioritize", "preempt", "bind"):
            self.malformed.labels(verb)
            self.verb_results.labels(verb, "fault")
        self.verb_results.labels("bind", "expired")
        for what in ("plans", "rollbacks", "evidence"):
            self.core.labels(what)
        for invariant in ("loop", "columns", "recorder"):
            self.invariant_violations.labels(invariant)
        for reloads in (self.tls_reloads, self.token_reloads):
            for result in ("ok", "failed"):
                reloads.labels(result)
        for result in ("ok", "refused", "unreachable"):
            self.lease_renewals.labels(result)

    def render(self) -> bytes:
        """The text exposition format, of type :data:`CONTENT_TYPE`."""
        return generate_latest(self.registry)
