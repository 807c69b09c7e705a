"""Topics that a deployment created for its results before the commit that records it, if that commit never happened.

On logs that keep FlowQL's topic options, these have the id of the deployment. A single instance deletes such topics if they are empty, as the next
deployment may need other numbers of partitions.
"""

from __future__ import annotations

from flowql.compiler.plan.deployed import Deployed
from flowql.runtime.log.base import Admin, Log, TopicPartition

MADE_BY = "flowql.deployment"  # option of a topic: application/deployment


def made_by(application_id: str, deployed: Deployed) -> dict[str, str]:
    """The option for topics that this deployment makes."""
    return {MADE_BY: f"{application_id}/{deployed.id}"}


def unrecorded(log: Log, application_id: str, deployed: Deployed) -> list[str]:
    """Empty topics of deployments later than what is on record."""
    if not log.drops_with_commits:  # nor does it keep the option
        return []
    found, admin = [], log.admin()
    for name, info in admin.topics().items():
        application, _, number = info.config.get(MADE_BY, "").rpartition("/")
        if application == application_id and int(number) > deployed.id and _is_empty(admin, name, info.partitions):
            found.append(name)
    return found


def _is_empty(admin: Admin, name: str, partitions: int) -> bool:
    return not any(admin.end_offsets([TopicPartition(name, p) for p in range(partitions)]).values())
