"""One GET over HTTPS, blocking and bounded, for the keys of tokens."""

import http.client
import ssl
import time
from typing import Final
from urllib.parse import urlsplit

_CHUNK: Final = 64 << 10


def get(url: str, *, ca_file: str, bytes_max: int, timeout_s: float) -> bytes:
    """Return the body behind an https URL. Redirects are not followed. `ca_file` has the
    authorities of the server's certificate; "": the system's. Raises OSError, also for a status
    other than 200, a body over `bytes_max`, and after `timeout_s` in all."""
    end_s = time.monotonic() + timeout_s
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        raise OSError(f"{url}: not an https URL")
    context = ssl.create_default_context(cafile=ca_file or None)
    connection = http.client.HTTPSConnection(
        parts.hostname, parts.port or 443, timeout=timeout_s, context=context
    )
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request("GET", path, headers={"Accept": "application/json"})
        response = connection.getresponse()
        if response.status != http.client.OK:
            raise OSError(f"{url}: status {response.status}")
        body = bytearray()
        while chunk := response.read(_CHUNK):
            body += chunk
            if len(body) > bytes_max:
                raise OSError(f"{url}: the body is larger than {bytes_max} bytes")
            if time.monotonic() > end_s:
                raise OSError(f"{url}: not received within {timeout_s} s")
        return bytes(body)
    except http.client.HTTPException as error:
        raise OSError(f"{url}: {error!r}") from error
    finally:
        connection.close()


def read_file(path: str, bytes_max: int) -> bytes:
    """Return the content of a file. Raises OSError, also for one over `bytes_max`."""
    with open(path, "rb") as opened:
        content = opened.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise OSError(f"{path}: larger than {bytes_max} bytes")
    return content
