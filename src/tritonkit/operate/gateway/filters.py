"""The filters that a request passes in the gateway, in order: the caller, its rights, its rate."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tritonkit.operate.gateway.routes import ADMIT, BUFFER, CHOICE, IDENTIFY, REQUESTS, SPACE, SPLIT
from tritonkit.operate.gateway.shared_limits import rate_limit_filter
from tritonkit.operate.gateway.spec import GatewaySpec, Jwt
from tritonkit.operate.gateway.token_rate import token_rate_filter
from tritonkit.operate.keys import PREFIX

__all__ = ["JWKS_CLUSTER", "http_filters", "jwks_address"]

_TYPE = "type.googleapis.com/envoy.extensions.filters.http"
JWKS_CLUSTER = "jwks"
_JWKS_S = 300


def http_filters(spec: GatewaySpec, folder: Path) -> list[dict[str, Any]]:
    """Envoy's HTTP filters.

    Args:
        folder: the gateway's folder, to which the paths in its spec are relative.
    """
    return [
        *(
            [
                _lua(IDENTIFY, spec.jwt, identifies=True, admits=False),
                _filter("envoy.filters.http.jwt_authn", "jwt_authn.v3.JwtAuthentication", _jwt(spec.jwt, folder)),
            ]
            if spec.jwt
            else []
        ),
        _lua(ADMIT, spec.jwt, identifies=spec.jwt is None, admits=True),
        # An error in the Lua above lets a request go on; this does not.
        _filter(
            "envoy.filters.http.rbac",
            "rbac.v3.RBAC",
            {
                "rules": {
                    "action": "ALLOW",
                    "policies": {
                        "admitted": {
                            "permissions": [{"any": True}],
                            "principals": [
                                {
                                    "sourced_metadata": {
                                        "metadata_matcher": {
                                            "filter": SPACE,
                                            "path": [{"key": "admitted"}],
                                            "value": {"bool_match": True},
                                        }
                                    }
                                }
                            ],
                        }
                    },
                }
            },
        ),
        _filter("envoy.filters.http.local_ratelimit", "local_ratelimit.v3.LocalRateLimit", {"stat_prefix": "gateway"}),
        *([token_rate_filter(spec.jwt, SPACE)] if spec.jwt and spec.jwt.rate_per_s else []),
        *([rate_limit_filter(spec.limits.shared)] if spec.limits.shared else []),
        _filter(BUFFER, "buffer.v3.Buffer", {"max_request_bytes": spec.limits.request_mib << 20}) | {"disabled": True},
        _filter("envoy.filters.http.router", "router.v3.Router", {}),
    ]


def jwks_address(jwt: Jwt) -> tuple[str, int, bool]:
    """Host and port of the issuer's key server, and whether it uses TLS."""
    url = urlsplit(jwt.jwks_url or "")
    secure = url.scheme == "https"
    return url.hostname or "", url.port or (443 if secure else 80), secure


def _filter(name: str, kind: str, options: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "typed_config": {"@type": f"{_TYPE}.{kind}", **options}}


def _lua(name: str, jwt: Jwt | None, *, identifies: bool, admits: bool) -> dict[str, Any]:
    code = {"inline_string": _program(jwt, identifies=identifies, admits=admits)}
    return _filter(name, "lua.v3.Lua", {"default_source_code": code, "stat_prefix": name.rpartition(".")[2]})


def _program(jwt: Jwt | None, *, identifies: bool, admits: bool) -> str:
    """The Lua files after the lines with their settings. No setting but the audiences can contain quotes."""
    models = ", ".join(f'"{model}"' for model in (jwt.models if jwt else ()))
    audiences = ", ".join(map(_lua_text, jwt.audiences if jwt else ()))
    settings = [
        f'local KEY_PREFIX = "{PREFIX}"',
        f'local SPACE = "{SPACE}"',
        f'local CHOICE = "{CHOICE}"',
        f'local SPLIT = "{SPLIT}"',
        f'local REQUESTS = "{REQUESTS}"',
        f"local IDENTIFIES = {str(identifies).lower()}",
        f"local LIMITS_TOKENS = {str(bool(jwt and jwt.rate_per_s)).lower()}",
        f"local ADMITS = {str(admits).lower()}",
        f"local ACCEPTS_TOKENS = {str(jwt is not None).lower()}",
        f'local MODELS_CLAIM = "{jwt.models_claim if jwt else "models"}"',
        f"local DEFAULT_MODELS = {{ {models} }}",
        f"local AUDIENCES = {{ {audiences} }}",
    ]
    here = Path(__file__).parent
    files = [here / "sha256.lua", here / "admission.lua"]
    return "\n".join([*settings, *(file.read_text("utf-8") for file in files)])


def _lua_text(text: str) -> str:
    return '"' + "".join(f"\\{byte:03d}" for byte in text.encode()) + '"'


def _jwt(jwt: Jwt | None, folder: Path) -> dict[str, Any]:
    assert jwt is not None  # noqa: S101
    provider: dict[str, Any] = {
        # Not `audiences`: for Envoy `https://triton/` would be `triton`. admission.lua looks at the claim.
        "issuer": jwt.issuer,
        "payload_in_metadata": "claims",
        "header_in_metadata": "header",
        "clock_skew_seconds": 30,
        "require_expiration": True,
        "from_headers": [{"name": "authorization", "value_prefix": "Bearer "}],
    }
    if jwt.jwks:
        provider["local_jwks"] = {
            "filename": str(folder / jwt.jwks),
            "watched_directory": {"path": str((folder / jwt.jwks).parent)},
        }
    else:
        provider["remote_jwks"] = {
            "http_uri": {"uri": jwt.jwks_url, "cluster": JWKS_CLUSTER, "timeout": "5s"},
            "cache_duration": {"seconds": _JWKS_S},
            "async_fetch": {},
        }
    either = {"requires_any": {"requirements": [{"provider_name": "issuer"}, {"allow_missing": {}}]}}
    return {"providers": {"issuer": provider}, "rules": [{"match": {"prefix": "/"}, "requires": either}]}
