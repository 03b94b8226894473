"""One rate for a key over several gateways: they ask a service, which keeps the counts in Redis."""

from tritonkit.operate.limiter.buckets import Buckets
from tritonkit.operate.limiter.service import Limiter, run_limiter

__all__ = ["Buckets", "Limiter", "run_limiter"]
