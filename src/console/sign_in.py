"""The login: the token of this start, then the user's own credentials if the cluster needs any."""

from typing import Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ..clients.credentials import SCRAM
from ..errors import InvalidConfig, QuorumlogError
from .failures import Failure, failure_of
from .html import render
from .page import PageServer, read_form, refuse_form
from .sessions import Session, Sessions

NAME_MAX: Final = 1_000  # characters of a user's name or password


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
        session.is_signed_in = not self._config.needs_credentials
        response = HTMLResponse(render("login.html", {"title": "Signing in"}))
        self._set_cookie(response, session)
        return response

    async def show(self, request: Request) -> Response:
        """Return the form for a user and a password."""
        session = self._server.session_of(request)
        if session is None:
            return self._server.refuse_stranger()
        if session.is_signed_in:
            return RedirectResponse("/", status_code=303)
        return self._form(session, "", None)

    async def sign_in(self, request: Request) -> Response:
        """Log in at a broker with a user and a password; the session gets another id."""
        session = self._server.session_of(request)
        if session is None:
            return self._server.refuse_stranger()
        form = await read_form(request, session)
        if form is None:
            return refuse_form()
        user, password = form.exact("user")[:NAME_MAX], form.exact("password")[:NAME_MAX]
        await session.close()
        try:
            # A password that names a file or a variable would be read from this machine.
            if password.startswith(("file:", "env:")):
                raise InvalidConfig("password: begins with file: or env:; give the password itself")
            session.credentials = SCRAM(
                user=user, password=password, mechanism=self._config.mechanism
            )
            log = await session.log()
            await log.admin.describe_cluster()
        except QuorumlogError as error:
            await session.close()
            return self._form(session, user, failure_of(error))
        session.is_signed_in = True
        self._sessions.renew_id(session)
        response = RedirectResponse("/", status_code=303)
        self._set_cookie(response, session)
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

    def _form(self, session: Session, user: str, failure: Failure | None) -> Response:
        values = {
            "title": "Sign in",
            "csrf": session.csrf,
            "entered": user,
            "failure": failure,
            "bootstrap": self._config.bootstrap,
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
