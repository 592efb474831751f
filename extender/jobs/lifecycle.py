"""The life of a training job, shared by all kinds: created, running, restarting, ended, cleaned.

One pass looks at a job and its pods and says what should be done now; nothing is remembered
between passes but what the job's status and history annotation say. Of several outcomes that are
true in one pass the first counts: success, a failure for good, too many restarts, the deadline.

Source: kubeflow/trainer v1.9.4, pkg/controller.v1/common/job.go. Differences, each on account of
what its users report: restarts are counted across pods, and the deadline has a timer; the clock
of activeDeadlineSeconds starts with the first bound pod, not while a gang waits for its turn; a
pod that is being deleted is not judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from extender.core import times
from extender.core.advice import Advice
from extender.core.errors import InvalidObject
from extender.core.framework import JobStep, Replica
from extender.core.objects import Manifest, Pod
from extender.jobs import cleanup, conditions, fields
from extender.jobs import pods as objects
from extender.jobs.advice import advise, training
from extender.jobs.conditions import Conditions
from extender.jobs.history import HISTORY
from extender.jobs.kind import Kind
from extender.jobs.model import TrainingJob
from extender.jobs.rollcall import RollCall, Tally, call, owned

Notices = tuple[tuple[str, str, str], ...]


class TrainingKind(Kind):
    """A kind of training job that lives this life."""

    def reconcile(
        self,
        job: Manifest,
        pods: Sequence[Pod],
        services: frozenset[str],
        now: float,
        ends: Sequence[Pod] = (),
    ) -> JobStep:
        """One pass over ``job``, the object as the API server holds it.

        ``pods`` are those that the job owns and any other in the namespace that has the name of
        one of its replicas; ``services`` names those that it owns; ``now`` is in epoch seconds;
        ``ends`` are pods as they ended or restarted, which count when they are gone, too.
        """
        managed_by = fields.dig(job, "spec", "runPolicy", "managedBy") or self.managed_by
        if managed_by != self.managed_by or job["metadata"].get("deletionTimestamp"):
            return JobStep()
        before = conditions.of(job)
        mine = owned(pods, job["metadata"].get("uid", ""))
        if conditions.end(before):
            return cleanup.after_end(job, mine, services, now)
        name, kind = job["metadata"]["name"], self.facts.kind
        created = conditions.put(
            before, conditions.CREATED, True, f"{kind}Created", f"{kind} {name} is created.", now
        )
        try:
            parsed = self.valid(job)
            roll = call(parsed, pods, self.facts.container, ends)
        except InvalidObject as problem:
            return self._invalid(job, created, problem, now)
        notices = _remarks(parsed) if not before else ()
        valid = conditions.drop(created, conditions.INVALID)
        if parsed.policy.suspend:
            return self._suspended(job, parsed, roll, valid, services, now)
        return self._alive(job, parsed, roll, valid, services, notices, now)

    def advice(self, job: Manifest) -> tuple[Advice, ...]:
        """Of a job that is valid and this controller's."""
        managed_by = fields.dig(job, "spec", "runPolicy", "managedBy") or self.managed_by
        if managed_by != self.managed_by:
            return ()
        try:
            return advise(training.subject(self, job))
        except InvalidObject:
            return ()

    def _invalid(
        self, job: Manifest, before: Conditions, problem: InvalidObject, now: float
    ) -> JobStep:
        """Nothing starts and nothing is stopped until the job is edited."""
        reason = f"{self.facts.kind}Invalid"
        after = conditions.put(before, conditions.INVALID, True, reason, str(problem), now)
        news = (("Warning", reason, str(problem)),) if after is not before else ()
        status = _status(job, {"conditions": after}, now)
        return JobStep(status=status, notices=news, keep_ends=True)

    def _suspended(
        self,
        job: Manifest,
        parsed: TrainingJob,
        roll: RollCall,
        before: Conditions,
        services: frozenset[str],
        now: float,
    ) -> JobStep:
        reason = f"{self.facts.kind}Suspended"
        message = f"{self.facts.kind} {parsed.name} is suspended."
        after = before
        if conditions.holds(after, conditions.RUNNING):
            after = conditions.put(after, conditions.RUNNING, False, reason, message, now)
        after = conditions.drop(after, conditions.RESTARTING)
        after = conditions.put(after, conditions.SUSPENDED, True, reason, message, now)
        tallies = {role: Tally(succeeded=t.succeeded) for role, t in roll.tallies.items()}
        fresh = not conditions.holds(before, conditions.SUSPENDED)
        wanted_status = {
            "conditions": after,
            "replicaStatuses": self._replica_statuses(parsed, tallies),
            "startTime": None,
        }
        mine = (*(pod for _, pod in roll.present), *roll.surplus)
        return JobStep(
            delete_pods=cleanup.deletions(mine),
            delete_services=tuple(sorted(services)),
            status=_status(job, wanted_status, now),
            notices=(("Normal", reason, message),) if fresh else (),
            annotations=_remembered(parsed, roll),
            # It would scale what has no pods.
            autoscaler=None if self.autoscaler(parsed) is None else {},
        )

    def _alive(
        self,
        job: Manifest,
        parsed: TrainingJob,
        roll: RollCall,
        before: Conditions,
        services: frozenset[str],
        notices: Notices,
        now: float,
    ) -> JobStep:
        after = before
        kind, name = self.facts.kind, parsed.name
        if conditions.holds(after, conditions.SUSPENDED):
            resumed = (f"{kind}Resumed", f"{kind} {name} is resumed.")
            after = conditions.put(after, conditions.SUSPENDED, False, *resumed, now)
            notices += (("Normal", *resumed),)
        start = times.parse(fields.dig(job, "status", "startTime"))
        if start is None and any(pod.spec.node_name for _, pod in roll.present):
            start = float(int(now))
        limit = parsed.policy.deadline
        due = start + limit if start is not None and limit is not None else None

        outcome = self._outcome(parsed, roll, overdue=due is not None and now >= due)
        if outcome:
            ended, message = outcome
            reason = self.cause(parsed, roll, ended)
            after = conditions.put(after, ended, True, reason, message, now)
            level = "Normal" if ended == conditions.SUCCEEDED else "Warning"
            notices += ((level, reason, message),)
        else:
            after, news = self._progress(parsed, roll, after, now)
            notices += news
        tallies = roll.tallies
        if conditions.holds(after, conditions.SUCCEEDED):
            # What still runs when the job has succeeded has done its part.
            tallies = {
                role: Tally(succeeded=tally.succeeded + tally.active, failed=tally.failed)
                for role, tally in tallies.items()
            }
        status = {
            "conditions": after,
            "replicaStatuses": self._replica_statuses(parsed, tallies),
            **({"startTime": times.rfc3339(start)} if start is not None else {}),
            **({"completionTime": times.rfc3339(now)} if outcome else {}),
        }
        written = _status(job, status, now)
        if outcome:
            # Cleaned up in the pass that finds the end written: an end is never lost half way.
            return JobStep(status=written, notices=notices, keep_ends=True)
        names = {replica.pod_name for replica in parsed.replicas()}
        missing = self._services(roll, services)
        return JobStep(
            wanted=roll.missing,
            group=objects.group(parsed, roll.gone, self.head(parsed)),
            services=tuple(each for each in missing if self.dialled(parsed, each)),
            spare_services=tuple(each for each in missing if not self.dialled(parsed, each)),
            delete_pods=cleanup.deletions((*(pod for _, pod in roll.again), *roll.surplus)),
            delete_services=tuple(sorted(services - names)),
            status=written,
            notices=notices + _strangers(parsed, roll),
            wake_at=due,
            annotations=_remembered(parsed, roll),
            autoscaler=self.autoscaler(parsed),
            children=self.children(parsed, roll),
            later=self.later(parsed, roll),
        )

    def _outcome(
        self, job: TrainingJob, roll: RollCall, *, overdue: bool
    ) -> tuple[str, str] | None:
        """The terminal condition that has come true, and its message."""
        kind, name = self.facts.kind, job.name
        if self.succeeded(job, roll.tallies):
            return conditions.SUCCEEDED, f"{kind} {name} is successfully completed."
        for role in job.roles:
            tally = roll.tallies[role.name]
            if tally.broken and not self.tolerates(job, role, tally):
                count = f"{tally.broken} {role.type} replica(s) failed."
                return conditions.FAILED, f"{kind} {name} is failed because {count}"
        limit = job.policy.backoff_limit
        restarts = sum(
            count
            for (role_name, _), count in roll.history.restarts.items()
            if (found := job.role(role_name)) and found.restart_policy != "Never"
        )
        if limit is not None and restarts > limit:
            why = "it has reached the specified backoff limit"
            return conditions.FAILED, f"{kind} {name} has failed because {why}"
        if overdue:
            why = "it was active longer than specified deadline"
            return conditions.FAILED, f"{kind} {name} has failed because {why}"
        return None

    def _progress(
        self, job: TrainingJob, roll: RollCall, before: Conditions, now: float
    ) -> tuple[Conditions, Notices]:
        """Running or Restarting. A job restarts until every replica that is to run runs."""
        kind, name = self.facts.kind, job.name
        after = before
        for role in job.roles:
            if again := sum(replica.role == role.name for replica, _ in roll.again):
                count = f"{again} {role.type} replica(s) failed."
                message = f"{kind} {name} is restarting because {count}"
                reason = f"{kind}Restarting"
                after = conditions.put(after, conditions.RESTARTING, True, reason, message, now)
                news = (("Warning", reason, message),) if after is not before else ()
                return after, news
        tallies = roll.tallies.values()
        whole = sum(t.active + t.succeeded + t.broken for t in tallies) >= job.total
        restarting = conditions.holds(before, conditions.RESTARTING)
        if self.running(job, roll.tallies) and (whole or not restarting):
            message = f"{kind} {name} is running."
            after = conditions.put(after, conditions.RUNNING, True, f"{kind}Running", message, now)
        return after, ()

    def _services(self, roll: RollCall, services: frozenset[str]) -> tuple[Replica, ...]:
        """Whose Services are still to be made: each once its pod is bound, none while a gang waits."""
        return tuple(
            replica
            for replica, pod in roll.present
            if pod.spec.node_name
            and replica.pod_name not in services
            and not pod.metadata.deletion_timestamp
        )

    def _replica_statuses(self, job: TrainingJob, tallies: Mapping[str, Tally]) -> Manifest:
        """Zeros are written out: a merge patch would keep the number of before."""
        return {
            role.type: {
                "active": tallies[role.name].active,
                "succeeded": tallies[role.name].succeeded,
                "failed": tallies[role.name].failed,
                "selector": objects.selector(job, self.facts, role.name),
            }
            for role in job.roles
        }


def _status(job: Manifest, wanted: Manifest, now: float) -> Manifest | None:
    """``wanted`` with the time of this pass, or None if the job says so already."""
    if all(fields.dig(job, "status", key) == value for key, value in wanted.items()):
        return None
    return {**wanted, "lastReconcileTime": times.rfc3339(now)}


def _remembered(job: TrainingJob, roll: RollCall) -> dict[str, str] | None:
    text = roll.history.write()
    return None if text == job.annotations.get(HISTORY, "") else {HISTORY: text}


def _remarks(job: TrainingJob) -> Notices:
    """What is accepted but not as written; said once, when the job is first seen."""
    remarks: list[tuple[str, str, str]] = []
    if job.spec.get("cleanPodPolicy"):
        inner = fields.dig(job.spec, "runPolicy", "cleanPodPolicy")
        used = "spec.runPolicy.cleanPodPolicy counts" if inner else "it is used all the same"
        message = f"spec.cleanPodPolicy belongs under spec.runPolicy; {used}"
        remarks.append(("Warning", "MisplacedField", message))
    for role in job.roles:
        own = role.template["spec"].get("restartPolicy")
        if own and own != role.restart_policy:
            message = (
                f"restartPolicy {own} in the pod template of {role.type} is overwritten by the"
                f" replica spec's ({role.restart_policy})"
            )
            remarks.append(("Warning", "SettedPodTemplateRestartPolicy", message))
    return tuple(remarks)


def _strangers(job: TrainingJob, roll: RollCall) -> Notices:
    """Pods in the way that nobody is about to remove (those of an earlier job of this name are)."""
    return tuple(
        (
            "Warning",
            "PodNameTaken",
            f"pod {pod.metadata.name} does not belong to this job; its replica waits for the name",
        )
        for pod in roll.blocked
        if not pod.metadata.deletion_timestamp
        and not any(ref.kind == job.kind for ref in pod.metadata.owner_references)
    )
