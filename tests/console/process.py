"""A console in a process of its own, and requests to it without a browser."""

import http.client
import os
import signal
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode, urlsplit

from tests.kit.command import COMMAND
from tests.kit.waits import AMPLE_S, TICK_S

END_S: Final = 30
NO_VALUES_YET: Final = "Reading the values from the cluster"


@dataclass
class Console:
    """A running console."""

    url: str  # with the login token
    pid: int

    @property
    def base(self) -> str:
        """The scheme, host and port."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def address(self) -> str:
        """The host and port."""
        return urlsplit(self.url).netloc


@contextmanager
def console_process(
    *arguments: str, environment: Mapping[str, str] | None = None
) -> Iterator[Console]:
    """Run `quorumlog console` on a free port."""
    process = subprocess.Popen(
        [*COMMAND, "console", "--port", "0", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    )
    try:
        assert process.stdout is not None, "piped"
        line = process.stdout.readline()
        assert "console is ready" in line, line
        yield Console(url=line.split()[-1], pid=process.pid)
        process.send_signal(signal.SIGTERM)
        assert process.wait(END_S) == 0, "the console did not end in order"
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@dataclass
class Reply:
    """A response."""

    status: int
    headers: Mapping[str, str]
    body: str  # bytes that are not UTF-8 are surrogates


@dataclass
class Visitor:
    """A program that sends requests with any headers."""

    console: Console
    cookie: str = ""
    csrf: str = ""
    ca: str = ""  # the authority of the console's certificate; "": without TLS

    def login(self) -> Reply:
        """Get a session by the login token."""
        reply = self.get(self.console.url.removeprefix(self.console.base))
        self.cookie = reply.headers["set-cookie"].partition(";")[0]
        page = self.get("/topics/new").body
        self.csrf = page.partition('name="csrf" value="')[2].partition('"')[0]
        return reply

    def _connect(self) -> http.client.HTTPConnection:
        if not self.ca:
            return http.client.HTTPConnection(self.console.address, timeout=60)
        context = ssl.create_default_context(cafile=self.ca)
        return http.client.HTTPSConnection(self.console.address, timeout=60, context=context)

    def get(self, path: str, **headers: str) -> Reply:
        """Send a GET; again while the page has no values yet, as on a busy machine."""
        end_s = time.monotonic() + AMPLE_S
        while True:
            reply = self.send("GET", path, headers)
            if NO_VALUES_YET not in reply.body or time.monotonic() > end_s:
                return reply
            time.sleep(TICK_S)

    def post(
        self, path: str, fields: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Send a form as the console's own page does; `headers` replace its headers."""
        body = urlencode({"csrf": self.csrf, **fields})
        usual = {
            "Origin": self.console.base,
            "Content-Type": "application/x-www-form-urlencoded",
        }
        return self.send("POST", path, usual | dict(headers or {}), body)

    def first_event(self, path: str) -> str:
        """Return the name of the first event of a stream."""
        connection = self._connect()
        try:
            connection.request("GET", path, headers={"Cookie": self.cookie})
            return connection.getresponse().readline().decode().removeprefix("event: ").strip()
        finally:
            connection.close()

    def send(
        self, method: str, path: str, headers: Mapping[str, str], body: str | None = None
    ) -> Reply:
        """Send a request; a header with an empty value is left out."""
        given = {"Host": self.console.address, "Cookie": self.cookie, **headers}
        connection = self._connect()
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in given.items():
                if value:
                    connection.putheader(name, value)
            content = None if body is None else body.encode()
            if content is not None:
                connection.putheader("Content-Length", str(len(content)))
            connection.endheaders(content)
            found = connection.getresponse()
            names = {name.lower(): value for name, value in found.getheaders()}
            return Reply(found.status, names, found.read().decode("utf-8", "surrogateescape"))
        finally:
            connection.close()
