"""An issuer of tokens with an HTTPS endpoint for its keys in this process."""

import json
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from quorumlog.runtime.tls import TlsFiles

ISSUER = "https://issuer.test"
AUDIENCE = "quorumlog"


class TokenIssuer:
    """A token issuer as a context manager."""

    def __init__(self, files: TlsFiles) -> None:
        self.key = rsa.generate_private_key(65_537, 2_048)
        self.key_id = "key"
        self._server = HTTPServer(("127.0.0.1", 0), self._handler())
        context = files.server_context()
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.requests = 0

    @property
    def url(self) -> str:
        """Return the URL of the key set."""
        return f"https://localhost:{self._server.server_port}/keys"

    def settings(self, ca: str) -> dict[str, Any]:
        """Return the settings of a node that accepts the issuer's tokens."""
        return {
            "sasl_oauthbearer_jwks_endpoint_url": self.url,
            "sasl_oauthbearer_jwks_ca_file": ca,
            "sasl_oauthbearer_expected_issuer": ISSUER,
            "sasl_oauthbearer_expected_audience": (AUDIENCE,),
        }

    def rotate(self) -> None:
        """Sign with a new key from now on; only that key is in the key set."""
        self.key, self.key_id = rsa.generate_private_key(65_537, 2_048), self.key_id + "+"

    def token(
        self,
        user: str,
        *,
        key: Any = None,
        algorithm: str = "RS256",
        headers: Mapping[str, Any] | None = None,
        **claims: Any,
    ) -> str:
        """Return a token of a user, valid for ten minutes. A claim None is omitted."""
        content = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": user,
            "exp": int(time.time()) + 600,
            **claims,
        }
        present = {name: value for name, value in content.items() if value is not None}
        given = {"kid": self.key_id, **(headers or {})}
        return jwt.encode(present, self.key if key is None else key, algorithm, given)

    def __enter__(self) -> "TokenIssuer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop serving the keys; tokens can still be signed."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.requests += 1
                public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(issuer.key.public_key()))
                body = json.dumps({"keys": [{**public, "kid": issuer.key_id}]}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        return Handler
