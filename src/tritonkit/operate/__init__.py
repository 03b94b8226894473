"""Operating what is served: the gateway before it, dashboards and alerts, releases, copies of a repository."""

__all__: list[str] = []
