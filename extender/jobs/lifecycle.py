"""The life of a training job, shared by all kinds: created, running, restarting, ended, cleaned.

One pass looks at a job and its pods and says what should be done now; nothing is remembered
between passes but what the job's status and history annotation say. Of several outcomes that are
true in one pass the first counts: success, a failure for good, too many restarts, the deadline.

Source: kubeflow/trainer v1.9.4, pkg/controller.v1/common/job.go. Differences, each on account of
what its users report: restarts are counted across pods, and the deadline has a timer; the clock
of activeDeadlineSeconds starts with the first bound pod, not while a gang waits for its turn; a
pod that is being deleted is not judged. A static gang is started again as a whole, see
:mod:`extender.jobs.restarts`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from extender.core import times
from extender.core.advice import Advice
from extender.core.errors import InvalidObject
from extender.core.framework import NO_NEWS, JobStep, NodeNews, Replica
from extender.core.objects import Manifest, Pod
from extender.jobs import cleanup, conditions, fields, remarks, restarts, together
from extender.jobs import pods as objects
from extender.jobs.advice import advise, training
from extender.jobs.conditions import Conditions
from extender.jobs.history import HISTORY
from extender.jobs.kind import BACKOFF, DEADLINE, Kind
from extender.jobs.model import TrainingJob
from extender.jobs.restarts import Restarts
from extender.jobs.rollcall import RollCall, Tally, call, owned
from extender.jobs.together import Stand

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
        nodes: NodeNews = NO_NEWS,
    ) -> JobStep:
        """One pass over ``job``, the object as the API server holds it.

        ``pods`` are those that the job owns and any other in the namespace that has the name of
        one of its replicas; ``services`` names those that it owns; ``now`` is in epoch seconds;
        ``ends`` are pods as they ended or restarted, which count when they are gone, too;
        ``nodes`` are those that something is the matter with.
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
            record = Restarts.read(parsed.annotations)
            gang = self._together(parsed)
            roll = call(parsed, pods, self.facts.container, ends, record.number if gang else 0)
        except InvalidObject as problem:
            return self._invalid(job, created, problem, now)
        notices = remarks.of_spec(parsed) if not before else ()
        valid = conditions.drop(created, conditions.INVALID)
        if parsed.policy.suspend:
            return self._suspended(job, parsed, roll, valid, services, now)
        aside = [type_.lower() for type_ in self.facts.aside]
        if gang:
            stand = together.stand(job, parsed, record, roll, nodes, aside, now)
        else:
            stand = together.alone(record, roll, nodes)
        return self._alive(job, parsed, roll, stand, valid, services, notices, now)

    def _together(self, job: TrainingJob) -> bool:
        """Whether the end of one replica ends them all. Raises InvalidObject for a wrong wish."""
        said = restarts.unit(job.annotations)
        return said == restarts.GANG if said else job.total > 1 and self.static(job)

    def advice(self, job: Manifest) -> tuple[Advice, ...] | None:
        """Of a job that is valid; None if it is another controller's."""
        managed_by = fields.dig(job, "spec", "runPolicy", "managedBy") or self.managed_by
        if managed_by != self.managed_by:
            return None
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
        stand: Stand,
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

        outcome = self._outcome(parsed, roll, stand, overdue=due is not None and now >= due)
        if stand.cause and not outcome:
            marks = together.restarted(parsed, roll, stand, stand.cause, now)
            return JobStep(
                annotations=marks,
                failed=stand.cause.failure(now),
                restarting=True,
                keep_ends=True,
            )
        if outcome:
            ended, message, why = outcome
            reason = self.cause(parsed, roll, ended, why)
            after = conditions.put(after, ended, True, reason, message, now)
            level = "Normal" if ended == conditions.SUCCEEDED else "Warning"
            notices += ((level, reason, message),)
        else:
            after, news = self._progress(parsed, roll, stand, after, now)
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
        unwanted = (*(p for _, p in stand.again), *stand.stopping, *stand.moving, *roll.surplus)
        return JobStep(
            wanted=() if stand.hold else roll.missing,
            failures=stand.record.failures,
            restarting=stand.restarting,
            group=objects.group(parsed, roll.gone, self.head(parsed)),
            services=tuple(each for each in missing if self.dialled(parsed, each)),
            spare_services=tuple(each for each in missing if not self.dialled(parsed, each)),
            delete_pods=cleanup.deletions(unwanted),
            grace=stand.grace,
            delete_services=tuple(sorted(services - names)),
            status=written,
            notices=notices + remarks.of_strangers(parsed, roll),
            wake_at=min((at for at in (due, stand.wake_at) if at is not None), default=None),
            annotations=_remembered(parsed, roll),
            autoscaler=self.autoscaler(parsed),
            children=self.children(parsed, roll),
            later=self.later(parsed, roll),
        )

    def _outcome(
        self, job: TrainingJob, roll: RollCall, stand: Stand, *, overdue: bool
    ) -> tuple[str, str, str] | None:
        """The terminal condition that has come true, its message, and which limit it comes of."""
        words = self.words(job)
        if self.succeeded(job, roll.tallies):
            return conditions.SUCCEEDED, words.succeeded, ""
        for role in job.roles:
            tally = roll.tallies[role.name]
            if tally.broken and not stand.excused and not self.tolerates(job, role, tally):
                count = f"{tally.broken} {role.type} replica(s) failed."
                return conditions.FAILED, f"{words.failed} {count}", ""
        limit = job.policy.backoff_limit
        if limit is not None and _spent(job, roll, stand) > limit:
            last = f": {stand.cause.message}" if stand.cause else ""
            message = f"Job {job.name} has failed because {BACKOFF}{last}"
            return conditions.FAILED, message, BACKOFF
        if overdue:
            message = f"Job {job.name} has failed because {DEADLINE}"
            return conditions.FAILED, message, DEADLINE
        return None

    def _progress(
        self, job: TrainingJob, roll: RollCall, stand: Stand, before: Conditions, now: float
    ) -> tuple[Conditions, Notices]:
        """Running or Restarting. A job restarts until every replica that is to run runs."""
        kind, name = self.facts.kind, job.name
        after = before
        if stand.restarting:
            record, reason = stand.record, f"{kind}Restarting"
            message = (
                f"{kind} {name} is restarting because {record.message}; all of it starts again"
                f" (restart {record.number}) from {times.rfc3339(record.until)} on."
            )
            known = conditions.find(after, conditions.RESTARTING)
            if known and known.get("message") != message:
                after = conditions.drop(after, conditions.RESTARTING)
            after = conditions.put(after, conditions.RESTARTING, True, reason, message, now)
            return after, (("Warning", reason, message),) if after is not before else ()
        for role in job.roles:
            if again := sum(replica.role == role.name for replica, _ in stand.again):
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
            message = self.words(job).running
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
    shown = fields.dig(job, "status", "replicaStatuses")
    if "replicaStatuses" in wanted and isinstance(shown, dict):
        # A role of no replicas any more: a merge patch would keep it, and be written for ever.
        counts = {**dict.fromkeys(shown), **wanted["replicaStatuses"]}
        wanted = {**wanted, "replicaStatuses": counts}
    return {**wanted, "lastReconcileTime": times.rfc3339(now)}


def _spent(job: TrainingJob, roll: RollCall, stand: Stand) -> int:
    """Restarts that use up backoffLimit: each of the gang counts once, as does each of a replica
    alone. One that is about to be made is among them.
    """
    history = roll.history.restarts if stand.cause is None else roll.before.restarts
    alone = sum(
        count
        for (role_name, _), count in history.items()
        if (found := job.role(role_name)) and found.restart_policy != "Never"
    )
    about = stand.cause is not None and stand.cause.counts
    return alone + stand.record.counted + about


def _remembered(job: TrainingJob, roll: RollCall) -> dict[str, str] | None:
    text = roll.history.write()
    return None if text == job.annotations.get(HISTORY, "") else {HISTORY: text}
