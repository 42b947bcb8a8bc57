"""The server: this machine only, known host names only, the page and its assets only."""

from __future__ import annotations

import errno
import gzip
import logging
import threading
import traceback
import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from dash import Dash, html, set_props
from flask import Flask, Response, abort, request
from werkzeug.exceptions import BadRequest, HTTPException
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from walksum.explore.answer import Session
from walksum.explore.callbacks import connect, shown_view
from walksum.explore.page import page
from walksum.explore.view import first_view
from walksum.workflow.trained_run import TrainedRun

ADDRESS = "127.0.0.1"
HOSTS = ("127.0.0.1", "localhost")
ASSETS = Path(__file__).parent / "assets"
SCRIPTS = "/_dash-component-suites/"
CALLBACK = "/_dash-update-component"
PREFIXES = ("/_dash-", "/assets/")
ANY_PATH = "/<path:path>"
SINGLES = ("/", "/_favicon.ico")
POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
    "script-src 'self' 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'"
)

INDEX = """<!doctype html>
<html lang="en">
<head>{%metas%}<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{%title%}</title>{%favicon%}{%css%}</head>
<body>{%app_entry%}<footer>{%config%}{%scripts%}{%renderer%}</footer></body>
</html>"""


def make_app(trained: TrainedRun) -> Dash:
    """The page of one trained run, with its first view made: the first visitor should not wait for it."""
    app = Dash(
        "walksum",
        assets_folder=str(ASSETS),
        serve_locally=True,
        title=f"{trained.title} · walksum explore",
        update_title="",
        compress=False,
        on_error=_say_failure,
        index_string=INDEX,
    )
    session = Session(trained)
    compute_first_view(session)
    app.layout = page(trained)
    connect(app, session)
    app.enable_dev_tools(debug=False)
    compress_scripts(app.server)
    guard(app.server)
    check_callbacks(app)
    return app


def _say_failure(error: Exception) -> None:
    """Report an unexpected error: a message on the page, the stack trace in the terminal. HTTP errors pass."""
    if isinstance(error, HTTPException):
        raise error
    traceback.print_exception(error)
    words = f"That did not work: {type(error).__name__}: {error}. The terminal shows where."
    set_props("message", {"children": [html.P(words)]})


def compute_first_view(session: Session) -> None:
    """Make predictions, layout and compiled kernels before the first visitor waits for them."""
    shown_view(session, first_view(session.trained), None)
    shown_view(session, replace(first_view(session.trained), node=session.trained.name(0)), None)


def guard(server: Flask) -> None:
    """Refuse what a page of another site could make a browser send here, and every path that is not the page's."""

    @server.before_request
    def check() -> None:
        if _hostname(f"//{request.host}") not in HOSTS:
            abort(403, "This server answers to 127.0.0.1 and localhost only.")
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != request.host:
            abort(403, "This server answers its own page only.")
        if ".." in unquote(unquote(request.path)) or not _known(request.path):
            abort(404)

    @server.after_request
    def add_security_headers(response: Response) -> Response:
        response.headers["Content-Security-Policy"] = POLICY
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        return response


def compress_scripts(server: Flask) -> None:
    """Send the components' scripts, megabytes of text, compressed, each compressed once."""
    made: dict[str, bytes] = {}

    @server.after_request
    def compress(response: Response) -> Response:
        if request.path.startswith(SCRIPTS) and response.status_code == 200 and "gzip" in request.accept_encodings:
            if request.path not in made:
                made[request.path] = gzip.compress(response.get_data(), 6)
            response.set_data(made[request.path])
            response.headers["Content-Encoding"] = "gzip"
        return response


def check_callbacks(app: Dash) -> None:
    """Answer a callback whose JSON the page would never send with 400 instead of a stack trace."""

    @app.server.before_request
    def check() -> None:
        if request.path == CALLBACK and request.method == "POST":
            try:
                body = request.get_json(silent=True)
            except RecursionError:
                body = None  # brackets nested a hundred thousand deep
            check_body(app, body)


def check_body(app: Dash, body: Any) -> None:
    """As Dash's renderer writes it: a known output, and its inputs and states as they were declared."""
    if not isinstance(body, dict):
        raise BadRequest("The body of a callback is a JSON object.")
    known = app.callback_map.get(body["output"]) if isinstance(body.get("output"), str) else None
    if known is None:
        raise BadRequest("There is no such callback.")
    if not isinstance(body.get("outputs"), list | dict):
        raise BadRequest("A callback names its outputs.")
    changed = body.get("changedPropIds", [])
    if not isinstance(changed, list) or not all(isinstance(each, str) for each in changed):
        raise BadRequest("changedPropIds is a list of names.")
    for kind in ("inputs", "state"):
        given = body.get(kind, [])
        parts = [each for each in given if isinstance(each, dict)] if isinstance(given, list) else None
        declared = [(each["id"], each["property"]) for each in known[kind]]
        if parts is None or [(each.get("id"), each.get("property")) for each in parts] != declared:
            raise BadRequest(f"The callback's {kind} are not those of the page.")


def _known(path: str) -> bool:
    """Dash answers every other path with its page."""
    rule = request.url_rule
    return (path in SINGLES or path.startswith(PREFIXES)) and rule is not None and rule.rule != ANY_PATH


def _hostname(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


class _Quiet(WSGIRequestHandler):
    def log_request(self, *args: Any, **kwargs: Any) -> None:
        """No line per request: the terminal belongs to the user."""


def open_server(trained: TrainedRun, port: int) -> BaseWSGIServer:
    """Open a server on the loopback address; port 0 takes a free one."""
    app = make_app(trained)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    try:
        return make_server(ADDRESS, port, app.server, threaded=True, request_handler=_Quiet)
    except (OSError, OverflowError, SystemExit) as error:
        raise ValueError(_busy(port, error)) from error


def _busy(port: int, error: BaseException) -> str:
    in_use = isinstance(error, SystemExit) or getattr(error, "errno", None) == errno.EADDRINUSE
    why = "is in use" if in_use else f"cannot be opened ({getattr(error, 'strerror', None) or error})"
    return f"port={port} {why}; name another one, or port=0 for any free one"


def url_of(server: BaseWSGIServer) -> str:
    return f"http://{ADDRESS}:{server.server_port}/"


def serve(server: BaseWSGIServer, browser: bool) -> None:
    """Serve the page until Ctrl-C."""
    if browser:
        # in a thread of its own: some browsers return only when they are closed
        threading.Thread(target=webbrowser.open, args=(url_of(server),), daemon=True).start()
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()
