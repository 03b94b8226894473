"""What happens around a call: which replica, whether again, how long, and when not to try."""

from tritonkit.client.policy.attempts import Sent
from tritonkit.client.policy.flow import Policy
from tritonkit.client.policy.lease import Lease
from tritonkit.client.policy.settings import Breaker, Hedge, Limit, Retry

__all__ = ["Breaker", "Hedge", "Lease", "Limit", "Policy", "Retry", "Sent"]
