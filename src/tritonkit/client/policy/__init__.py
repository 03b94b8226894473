"""The policy of calls: which replica, whether to retry, how long to wait, and when not to try."""

from tritonkit.client.policy.attempts import Sent
from tritonkit.client.policy.policy import Policy
from tritonkit.client.policy.replica import Attempt, Replica
from tritonkit.client.policy.settings import Breaker, Hedge, Limit, Retry

__all__ = ["Attempt", "Breaker", "Hedge", "Limit", "Policy", "Replica", "Retry", "Sent"]
