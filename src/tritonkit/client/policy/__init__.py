"""What happens around a call: which replica, whether again, how long, and when not to try."""

from tritonkit.client.policy.attempts import Sent
from tritonkit.client.policy.policy import Policy
from tritonkit.client.policy.replica import Replica, ReplicaLease
from tritonkit.client.policy.settings import Breaker, Hedge, Limit, Retry

__all__ = ["Breaker", "Hedge", "Limit", "Policy", "Replica", "ReplicaLease", "Retry", "Sent"]
