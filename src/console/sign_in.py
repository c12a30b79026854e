"""The login: the token of this start, then the user's own credentials if the cluster needs any."""

import json
import re
from base64 import urlsafe_b64decode
from typing import Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ..clients.credentials import SCRAM, Token
from ..errors import InvalidConfig, QuorumlogError
from .config import OAUTHBEARER
from .failures import Failure, failure_of
from .html import render
from .page import Form, PageServer, read_form, refuse_form
from .sessions import Session, Sessions

NAME_MAX: Final = 1_000  # characters of a user's name or password
TOKEN_MAX: Final = 31 * 1024  # characters, as at the brokers
TOKEN: Final = re.compile(rf"(?=.{{1,{TOKEN_MAX}}}\Z)[\w-]+\.[\w-]+\.[\w-]+", re.ASCII)


class SignIn:
    """Answers requests of the login."""

    def __init__(self, server: PageServer, sessions: Sessions) -> None:
        self._server = server
        self._sessions = sessions
        self._config = sessions.config

    async def login(self, request: Request) -> Response:
        """Open a session for the URL with the login token.

        The page refreshes to the first page by itself: the cookie is not sent along a redirection
        that another site's link began.
        """
        if not self._sessions.is_token(request.query_params.get("token", "")):
            return self._server.refuse_stranger()
        session = await self._sessions.open()
        response = HTMLResponse(render("login.html", {"title": "Signing in"}))
        self._set_cookie(response, session)
        return response

    async def show(self, request: Request) -> Response:
        """Return the form for a user and a password, or a token."""
        session = self._server.session_of(request)
        if session is None:
            return self._server.refuse_stranger()
        if session.is_signed_in:
            return RedirectResponse("/", status_code=303)
        return self._form(session, "", None)

    async def sign_in(self, request: Request) -> Response:
        """Log in at a broker with the credentials of the form. A new session replaces the old."""
        session = self._server.session_of(request)
        if session is None:
            return self._server.refuse_stranger()
        form = await read_form(request, session)
        if form is None:
            return refuse_form()
        if not self._config.needs_credentials:
            return RedirectResponse("/", status_code=303)
        try:
            made = await self._sessions.sign_in(session, *self._credentials(form))
        except QuorumlogError as error:
            return self._form(session, form.exact("user")[:NAME_MAX], failure_of(error))
        if made is None:
            return self._server.refuse_stranger()
        response = RedirectResponse("/", status_code=303)
        self._set_cookie(response, made)
        return response

    async def sign_out(self, request: Request) -> Response:
        """End the session."""
        session = self._server.session_of(request)
        if session is not None:
            if await read_form(request, session) is None:
                return refuse_form()
            await self._sessions.end(session)
        values = {"title": "Signed out", "message": "You are signed out."}
        response = HTMLResponse(render("stranger.html", values))
        response.delete_cookie(self._sessions.cookie, path="/")
        return response

    async def state(self, request: Request) -> Response:
        """Return status 204 with a session and 401 without; it does not count as a use."""
        session = self._server.session_of(request, is_use=False)
        return Response(status_code=401 if session is None else 204)

    def _credentials(self, form: Form) -> tuple[SCRAM | Token, str]:
        """Return the credentials of a form with the name of their user. Raise InvalidConfig."""
        if self._config.mechanism == OAUTHBEARER:
            token = "".join(form.text("token").removeprefix("Bearer ").split())
            if not TOKEN.fullmatch(token):
                raise InvalidConfig(
                    "token: not a JSON Web Token, which has three parts with dots between and at"
                    f" most {TOKEN_MAX:,} characters; paste the whole token"
                )
            return Token(token), subject_of(token)
        user, password = form.exact("user")[:NAME_MAX], form.exact("password")[:NAME_MAX]
        # A password that names a file or a variable would be read from this machine.
        if password.startswith(("file:", "env:")):
            raise InvalidConfig("password: begins with file: or env:; give the password itself")
        return SCRAM(user=user, password=password, mechanism=self._config.mechanism), user

    def _form(self, session: Session, user: str, failure: Failure | None) -> Response:
        values = {
            "title": "Sign in",
            "csrf": session.csrf,
            "entered": user,
            "failure": failure,
            "bootstrap": self._config.bootstrap,
            "is_token": self._config.mechanism == OAUTHBEARER,
        }
        return HTMLResponse(render("sign_in.html", values), status_code=422 if failure else 200)

    def _set_cookie(self, response: Response, session: Session) -> None:
        response.set_cookie(
            self._sessions.cookie,
            session.id,
            path="/",
            httponly=True,
            samesite="strict",
            secure=bool(self._config.certificate),
        )


def subject_of(token: str) -> str:
    """Return the subject that a JSON Web Token claims, "" without one. Pages show it; only the
    brokers verify the token."""
    try:
        claims = json.loads(urlsafe_b64decode(token.split(".")[1] + "=="))
    except (ValueError, RecursionError):
        return ""
    subject = claims.get("sub") if isinstance(claims, dict) else None
    return subject[:NAME_MAX] if isinstance(subject, str) else ""
