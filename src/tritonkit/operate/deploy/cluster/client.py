"""The API server of the cluster that KUBECONFIG names: objects as its own JSON, errors as ours."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritonkit.errors import ClientError, ServerUnavailable, UsageError
from tritonkit.extras import need_package
from tritonkit.text import first_line

__all__ = ["EXTRA", "Cluster", "Forbidden", "NotThere", "connect"]

EXTRA = "tritonkit[kubernetes]"
_CONNECT_S, _READ_S = 5.0, 15.0
_KINDS = {
    "pods": ("", "CoreV1Api", "list_namespaced_pod"),
    "events": ("", "CoreV1Api", "list_namespaced_event"),
    "persistentvolumeclaims": ("", "CoreV1Api", "list_namespaced_persistent_volume_claim"),
    "nodes": ("", "CoreV1Api", "list_node"),
    "deployments": ("apps", "AppsV1Api", "list_namespaced_deployment"),
    "replicasets": ("apps", "AppsV1Api", "list_namespaced_replica_set"),
}
"""Resource -> API group, class and method of the library."""


class Forbidden(ClientError):
    """The API server knows the caller, who lacks the right to do this."""


class NotThere(ClientError):
    """The API server knows no such object or kind."""


@dataclass(frozen=True)
class Cluster:
    """A namespace of a cluster.

    Args:
        api: the `kubernetes.client.ApiClient`.
        server: the API server's address.
        namespace: the namespace to read.
    """

    api: Any
    server: str
    namespace: str

    def items(self, resource: str, selector: str = "") -> list[dict[str, Any]]:
        """The objects of a kind (a name of `_KINDS`) in the namespace, as the API server's JSON.

        Raises:
            Forbidden, NotThere, ServerUnavailable, ClientError.
        """
        client = need_package("kubernetes.client", EXTRA)

        group, api, method = _KINDS[resource]
        query = {"label_selector": selector} if selector else {}
        words = [] if resource == "nodes" else [self.namespace]
        call = getattr(getattr(client, api)(self.api), method)
        with self.translated("list", group, resource):
            response = call(*words, **query, _preload_content=False, _request_timeout=(_CONNECT_S, _READ_S))
            return list(json.loads(_body(response))["items"])

    def has_namespace(self) -> bool:
        """Whether the namespace is there.

        Raises:
            Forbidden, ServerUnavailable, ClientError.
        """
        client = need_package("kubernetes.client", EXTRA)

        with suppress(NotThere), self.translated("get", "", "namespaces"):
            _body(
                client.CoreV1Api(self.api).read_namespace(
                    self.namespace, _preload_content=False, _request_timeout=(_CONNECT_S, _READ_S)
                )
            )
            return True
        return False

    def log(self, pod: str, container: str, **options: Any) -> list[str]:
        """The lines of a container's log.

        Raises:
            Forbidden, NotThere, ServerUnavailable, ClientError.
        """
        client = need_package("kubernetes.client", EXTRA)

        with self.translated("get", "", "pods/log"):
            response = client.CoreV1Api(self.api).read_namespaced_pod_log(
                pod,
                self.namespace,
                container=container,
                **options,
                _preload_content=False,
                _request_timeout=(_CONNECT_S, _READ_S),
            )
            return _body(response).decode(errors="replace").splitlines()

    @contextmanager
    def translated(self, verb: str, group: str, resource: str) -> Iterator[None]:
        """Turn the library's errors into tritonkit's."""
        exceptions = need_package("kubernetes.client.exceptions", EXTRA)
        urllib3 = need_package("urllib3", EXTRA)
        try:
            yield
        except exceptions.ApiException as error:
            raise self._refused(error, verb, group, resource) from error
        except urllib3.exceptions.HTTPError as error:
            raise ServerUnavailable(
                self.server,
                found=_why(error),
                wanted="the cluster's API server",
                todo="kubectl cluster-info; another cluster: --context or KUBECONFIG",
            ) from error

    def _refused(self, error: Any, verb: str, group: str, resource: str) -> ClientError:
        everywhere = resource in {"nodes", "namespaces"}
        what = f"{verb} {resource}" + ("" if everywhere else f" in namespace {self.namespace}")
        if error.status == 403:
            kind = "ClusterRole" if everywhere else "Role"
            return Forbidden(
                self.server,
                found=f"no right to {what}: {_message(error)}",
                wanted=f"a {kind} with the rule"
                f' {{apiGroups: ["{group}"], resources: ["{resource}"], verbs: ["{verb}"]}}',
                todo=f"ask the cluster's administrator for it; kubectl auth can-i {verb} {resource}"
                f" -n {self.namespace} says whether you have it",
            )
        if error.status == 404:
            return NotThere(
                self.server,
                found=f"{what}: {_message(error)}",
                wanted="a Kubernetes API server that has it",
                todo="kubectl cluster-info; another cluster: --context or KUBECONFIG",
            )
        if error.status == 401:
            return ClientError(
                self.server,
                found="it does not know who asks (401)",
                wanted="valid credentials",
                todo="log in to the cluster again, or name another --context",
            )
        if error.status in (0, None):  # a TLS or websocket failure of the library's own
            return ServerUnavailable(
                self.server,
                found=_why(error),
                wanted="the cluster's API server",
                todo="correct certificate-authority and server in the kubeconfig, or name another --context",
            )
        return ClientError(self.server, found=f"{what}: {error.status} {_message(error)}")


def connect(context: str | None, namespace: str) -> Cluster:
    """A client of the cluster that KUBECONFIG or ~/.kube/config names; nothing is sent yet.

    Raises:
        UsageError: the library, the file or the context is missing.
    """
    client = need_package("kubernetes.client", EXTRA)
    config = need_package("kubernetes.config", EXTRA)

    file = os.environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
    if not any(Path(part).is_file() for part in file.split(os.pathsep)):
        raise UsageError(
            file,
            found="no such file",
            wanted="a kubeconfig",
            todo="export KUBECONFIG=FILE, or have your cluster's tool write ~/.kube/config",
        )
    settings = client.Configuration()
    try:
        contexts = [entry["name"] for entry in config.list_kube_config_contexts(file)[0]]
        if context is not None and context not in contexts:
            raise UsageError("--context", found=f"{context!r} is not in {file}", wanted=f"one of {', '.join(contexts)}")
        config.load_kube_config(file, context=context, client_configuration=settings)
    except UsageError:
        raise
    except Exception as error:  # YAML's, the library's own, and what a credential plugin raises
        raise UsageError(
            file,
            found=f"it cannot be used: {first_line(error)}",
            wanted="a kubeconfig with a current context",
            todo="kubectl config view; kubectl config use-context NAME",
        ) from error
    settings.retries = False  # report an unreachable cluster immediately, not after minutes
    return Cluster(client.ApiClient(settings), settings.host, namespace)


def _body(response: Any) -> bytes:
    _check(response)
    return bytes(response.data)


def _check(response: Any) -> None:
    """Raise for an error status: some releases of the library do not, if they do not read the response."""
    if response.status >= 300:
        exceptions = need_package("kubernetes.client.exceptions", EXTRA)
        error = exceptions.ApiException(status=response.status, reason=response.reason)
        error.body = response.data.decode(errors="replace")
        raise error


def _message(error: Any) -> str:
    try:
        return str(json.loads(error.body)["message"])
    except (TypeError, ValueError, KeyError):
        return str(error.reason or "")


def _why(error: Exception) -> str:
    text = str(getattr(error, "reason", None) or error)
    if "CERTIFICATE_VERIFY_FAILED" in text or "SSL" in text:
        return "TLS failed: " + text.splitlines()[-1]
    if "refused" in text:
        return "connection refused"
    if "timed out" in text:
        return f"no answer within {_CONNECT_S:g} s to connect or {_READ_S:g} s to answer"
    return text.splitlines()[0] if text else type(error).__name__
