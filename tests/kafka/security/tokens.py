"""An identity provider in small: gives out signed tokens (JWT, RS256) by client credentials, and shows its key (JWKS).

The scope ``expired`` gets a token whose time is up, ``elsewhere`` one for another audience.
Tokens: RFC 7519; the request: RFC 6749, section 4.4; the key: RFC 7517.
"""

from __future__ import annotations

import base64
import json
import os
import time
import urllib.request
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.serving import Answering, Serving

ISSUER, AUDIENCE, KEY_ID = "https://identity.example", "kafka", "one"


class Tokens(Serving):
    """The provider: while the ``with`` block lasts, it answers at ``url``."""

    def __init__(self, user: str, secret: str) -> None:
        """A client with ``user`` and ``secret`` gets a token for ``user``."""
        self.given: list[str] = []
        self._user, self._secret = user, secret
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        provider = self

        class Handler(Answering):
            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"] or 0)).decode())
                known = self.headers["Authorization"] == f"Basic {_basic(user, secret)}"
                answer = provider._token(form.get("scope", [""])[0]) if known else {"error": "invalid_client"}
                body = json.dumps(answer).encode()
                self.answer(200 if known else 401, body)

        super().__init__(Handler)

    @property
    def url(self) -> str:
        return f"{self.address}/token"

    def write_keys(self, path: Path) -> None:
        numbers = self._key.public_key().public_numbers()
        key = {
            "kty": "RSA",
            "kid": KEY_ID,
            "use": "sig",
            "alg": "RS256",
            "n": _number(numbers.n),
            "e": _number(numbers.e),
        }
        path.write_text(json.dumps({"keys": [key]}))

    def _token(self, scope: str) -> dict[str, Any]:
        now = int(time.time()) - (7200 if scope == "expired" else 0)
        claims = {
            "iss": ISSUER,
            "aud": "another" if scope == "elsewhere" else AUDIENCE,
            "sub": self._user,
            "iat": now,
            "exp": now + 3600,
            "jti": uuid.uuid4().hex,
        }
        signed = ".".join(_text(json.dumps(part).encode()) for part in ({"alg": "RS256", "kid": KEY_ID}, claims))
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        self.given.append(f"{signed}.{_text(signature)}")
        return {"access_token": self.given[-1], "token_type": "Bearer", "expires_in": 3600}


def fetched() -> tuple[str, float]:
    """A token and its end, as a user's own function gets them: from the provider that the environment names."""
    request = urllib.request.Request(os.environ["TOKENS_URL"], data=b"grant_type=client_credentials")
    request.add_header("Authorization", f"Basic {_basic(os.environ['TOKENS_USER'], os.environ['TOKENS_SECRET'])}")
    with urllib.request.urlopen(request, timeout=10) as answer:
        made = json.load(answer)
    return made["access_token"], time.time() + made["expires_in"]


def _basic(user: str, secret: str) -> str:
    return base64.b64encode(f"{user}:{secret}".encode()).decode()


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _number(number: int) -> str:
    return _text(number.to_bytes(-(-number.bit_length() // 8), "big"))
