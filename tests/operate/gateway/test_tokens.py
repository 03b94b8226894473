"""JSON Web Tokens instead of keys: signed for the test, checked by a real Envoy."""

from __future__ import annotations

import base64
import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from tests.operate.gateway.conftest import Gateway, StartGateway
from tritonkit.client.wire.protos import schema

pytestmark = pytest.mark.needs("envoy")

ISSUER = "https://login.example.org"
SPEC = f"jwt: {{issuer: '{ISSUER}', audiences: [triton], jwks: jwks.json}}"
ADMITTED = 503


def encoded(data: bytes) -> str:
    """Base64url without padding (RFC 7515)."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def token(key: ec.EllipticCurvePrivateKey, header: dict[str, Any] | None = None, **claims: Any) -> str:
    """A signed token, good for some minutes unless the claims say otherwise; one that is None is left out."""
    whole = {"iss": ISSUER, "aud": "triton", "sub": "alice", "exp": int(time.time()) + 600} | claims
    parts = [{"alg": "ES256", "kid": "one"} | (header or {}), {k: v for k, v in whole.items() if v is not None}]
    text = ".".join(encoded(json.dumps(part).encode()) for part in parts)
    r, s = decode_dss_signature(key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
    return f"{text}.{encoded(r.to_bytes(32) + s.to_bytes(32))}"


@pytest.fixture(scope="module")
def signer() -> ec.EllipticCurvePrivateKey:
    """The issuer's key."""
    return ec.generate_private_key(ec.SECP256R1())


@pytest.fixture(scope="module")
def gateway(start_gateway: StartGateway, signer: ec.EllipticCurvePrivateKey) -> Gateway:
    """One that takes the issuer's tokens."""
    point = signer.public_key().public_numbers()
    jwk = {
        "kty": "EC",
        "crv": "P-256",
        "kid": "one",
        "alg": "ES256",
        "x": encoded(point.x.to_bytes(32)),
        "y": encoded(point.y.to_bytes(32)),
    }

    def prepare(folder: Path) -> None:
        (folder / "jwks.json").write_text(json.dumps({"keys": [jwk]}))

    return start_gateway(SPEC, prepare)


@pytest.fixture(scope="module")
def limited(start_gateway: StartGateway, gateway: Gateway) -> Gateway:
    """Another one, where each subject has a rate."""
    key_set = gateway.places.folder / "jwks.json"
    return start_gateway(
        SPEC.replace("}", ", rate_per_s: 0.01, burst: 3}"), lambda folder: shutil.copy(key_set, folder / "jwks.json")
    )


def get(gateway: Gateway, path: str, text: str) -> int:
    """The status of a call with a token."""
    return gateway.get(path, {"Authorization": f"Bearer {text}"})[0]


def test_a_token_opens_the_models_that_it_names(gateway: Gateway, signer: ec.EllipticCurvePrivateKey) -> None:
    """Models are a list or separated by spaces; `*` means all."""
    one = token(signer, models=["digits"])
    assert get(gateway, "/v2/models/digits/ready", one) == ADMITTED
    assert get(gateway, "/v2/models/sentences/ready", one) == 403
    both = token(signer, models="digits sentences")
    assert get(gateway, "/v2/models/sentences/ready", both) == ADMITTED
    assert get(gateway, "/v2/models/stats", both) == 403
    assert get(gateway, "/v2/models/stats", token(signer, models="*")) == ADMITTED
    message = schema().ModelInferRequest(model_name="digits").SerializeToString()
    called = gateway.call("/inference.GRPCInferenceService/ModelInfer", message, authorization=f"Bearer {one}")
    assert called[0] == "UNAVAILABLE"


def test_a_token_without_models_opens_none(gateway: Gateway, signer: ec.EllipticCurvePrivateKey) -> None:
    """Unless gateway.yaml names some; what names no model is open to it."""
    assert get(gateway, "/v2/models/digits/ready", token(signer)) == 403
    assert get(gateway, "/v2/models/digits/ready", token(signer, models={"a": 1})) == 403
    assert get(gateway, "/v2/models/digits/ready", token(signer, models={"a": "digits"})) == 403
    assert get(gateway, "/v2", token(signer)) == ADMITTED


@pytest.mark.parametrize(
    "wrong",
    [
        {"exp": 1_000_000_000},
        {"exp": None},
        {"iss": "https://other.example.org"},
        {"iss": f"{ISSUER}/"},
        {"iss": "login.example.org"},
        {"aud": "other"},
        {"aud": None},
        {"nbf": 4_000_000_000},
        {"sub": None},
        {"sub": ""},
        {"aud": []},
        {"aud": ["other"]},
        {"aud": "Triton"},
        {"aud": "triton/"},
        {"aud": "https://triton"},
        {"aud": ["http://triton/"]},
        {"aud": "triton other"},
    ],
)
def test_a_token_that_does_not_hold_is_refused(
    gateway: Gateway, signer: ec.EllipticCurvePrivateKey, wrong: dict[str, Any]
) -> None:
    """Expired, without an end, of another issuer, for others (of a similar name, too), of tomorrow, of nobody."""
    text = token(signer, models="*", **wrong)
    assert get(gateway, "/v2", text) == 401
    called = gateway.call("/inference.GRPCInferenceService/ServerLive", authorization=f"Bearer {text}")
    assert called[0] == "UNAUTHENTICATED"


def test_a_token_for_several_is_taken(gateway: Gateway, signer: ec.EllipticCurvePrivateKey) -> None:
    """One of its audiences is this gateway."""
    assert get(gateway, "/v2", token(signer, aud=["other", "triton"])) == ADMITTED


@pytest.mark.parametrize("header", [{"crit": ["x"], "x": 1}, {"crit": []}, {"crit": ["b64"], "b64": False}])
def test_an_extension_that_must_be_understood_is_refused(
    gateway: Gateway, signer: ec.EllipticCurvePrivateKey, header: dict[str, Any]
) -> None:
    """RFC 7515 wants that of a header with `crit`, and nothing is understood here."""
    sent = {"Authorization": f"Bearer {token(signer, header, models='*')}"}
    status, text = gateway.get("/v2", sent)
    assert (status, "crit" in text) == (401, True)


def test_a_forged_token_is_refused(gateway: Gateway, signer: ec.EllipticCurvePrivateKey) -> None:
    """Signed by another key, not signed, with another's claims, or no token at all."""
    good = token(signer, models="digits")
    head, body, signature = good.split(".")
    claims = encoded(json.dumps({"iss": ISSUER, "aud": "triton", "sub": "eve", "models": "*", "exp": 4e9}).encode())
    none = encoded(json.dumps({"alg": "none"}).encode())
    forged = [
        token(ec.generate_private_key(ec.SECP256R1()), models="*"),
        f"{head}.{claims}.{signature}",
        f"{none}.{claims}.",
        f"{head}.{body}",
        f"{head}.{body}.",
        "nothing",
        token(signer, {"alg": "HS256"}),
        token(signer, {"kid": "two"}),
    ]
    for text in forged:
        assert get(gateway, "/v2", text) == 401, text
    assert get(gateway, "/v2", good) == ADMITTED


def test_keys_and_tokens_go_together(gateway: Gateway, signer: ec.EllipticCurvePrivateKey) -> None:
    """Either opens; neither is refused; a wrong key with a good token is."""
    assert gateway.get("/v2")[0] == 401
    good = {"Authorization": f"Bearer {token(signer, models='*')}"}
    assert gateway.get("/v2", good)[0] == ADMITTED
    assert gateway.get("/v2", good | {"x-api-key": "tk_wrong"})[0] == 401


def test_who_called_stands_in_the_audit_log(gateway: Gateway, signer: ec.EllipticCurvePrivateKey) -> None:
    """The log has the token's subject, and not the token."""
    text = token(signer, models="digits", sub="bob@example.org")
    path = "/v2/models/digits/versions/77/ready"
    get(gateway, path, text)
    (line,) = gateway.audit([path])
    assert line["key"] == "jwt:bob@example.org"
    assert gateway.places.audit is not None
    assert text.split(".")[2] not in gateway.places.audit.read_text()


def test_no_two_subjects_have_one_name(gateway: Gateway, signer: ec.EllipticCurvePrivateKey) -> None:
    """Letters that no log should have are replaced, and what is long is cut: a hash tells them apart."""
    names = []
    for place, subject in enumerate(["甲", "乙", "a" * 200, "a" * 201]):
        path = f"/v2/models/digits/versions/{90 + place}/ready"
        get(gateway, path, token(signer, models="digits", sub=subject))
        names.append(gateway.audit([path])[0]["key"])
    assert len(set(names)) == 4
    assert names[0].startswith("jwt:___#")
    assert all(name.isascii() and len(name) <= 132 for name in names)


def test_each_subject_has_a_rate(limited: Gateway, signer: ec.EllipticCurvePrivateKey) -> None:
    """Whatever token of it comes, over REST and gRPC; keys have their own."""
    path = "/v2/models/digits/ready"
    alice = [get(limited, path, token(signer, models=["digits"], jti=str(n))) for n in range(5)]
    assert alice == [ADMITTED] * 3 + [429] * 2
    assert get(limited, path, token(signer, sub="bob", models=["digits"])) == ADMITTED
    sent = {"authorization": f"Bearer {token(signer, models=['*'])}"}
    method = "/inference.GRPCInferenceService"
    assert limited.call(f"{method}/ServerLive", **sent)[0] == "RESOURCE_EXHAUSTED"
    assert limited.call(f"{method}/ModelStreamInfer", **sent)[0] == "PERMISSION_DENIED"
    message = schema().ModelInferRequest(model_name="digits").SerializeToString()
    statuses = [limited.call(f"{method}/ModelConfig", message, **sent)[0] for _ in range(40)]
    assert statuses[0] == "UNAVAILABLE"
    assert statuses[-1] == "RESOURCE_EXHAUSTED"
    key = limited.add_key("all")
    limited.reload()
    for _ in range(5):
        assert limited.get(path, {"x-api-key": key})[0] == ADMITTED
