"""The server answers this machine, its own page, and nothing else."""

import http.client
import socket
from dataclasses import asdict

import pytest

pytest.importorskip("dash_cytoscape")

import contextlib

from walksum.explore.server import ADDRESS, ASSETS, make_app, open_server


@pytest.fixture(scope="module")
def client(small):
    return make_app(small).server.test_client()


def ask(served, path, host=None, method="GET", **headers):
    """A request as it goes over the wire: no client library tidies the path."""
    connection = http.client.HTTPConnection(ADDRESS, served.port, timeout=30)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host or f"127.0.0.1:{served.port}")
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_the_page_and_its_assets_are_served(served):
    assert ask(served, "/")[0] == 200
    assert ask(served, "/_dash-layout")[0] == 200
    status, body = ask(served, "/assets/style.css")
    assert (status, body) == (200, (ASSETS / "style.css").read_bytes())
    assert ask(served, "/", host=f"localhost:{served.port}")[0] == 200


def test_nothing_on_the_page_comes_from_elsewhere(served):
    body = ask(served, "/")[1].decode()
    page = body.replace("https://dash-version.plotly.com:8080/current_version", "")  # where a dev tool would look
    assert "https://" not in page
    assert "http://" not in page


@pytest.mark.parametrize(
    "path",
    [
        "/../pyproject.toml",
        "/assets/../server.py",
        "/assets/%2e%2e/server.py",
        "/assets/..%2fserver.py",
        "/assets/%2e%2e%2fserver.py",
        "/assets/%252e%252e%252fserver.py",
        "/assets/..%5cserver.py",
        "/assets/....//server.py",
        "/assets//etc/passwd",
        "/assets/%2fetc%2fpasswd",
        "/_dash-component-suites/dash/../../../../etc/passwd",
        "/_dash-component-suites/dash/%2e%2e/%2e%2e/typer/__init__.py",
        "//etc/passwd",
        "/etc/passwd",
        "/server.py",
        "/config.json",
    ],
)
def test_no_path_leads_out_of_the_assets(served, path):
    status, body = ask(served, path)
    assert status in (404, 308, 400)
    assert b"root:" not in body
    assert b"import" not in body


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil", "[::1", ""]
)
def test_foreign_host_names_are_refused(served, host):
    connection = http.client.HTTPConnection(ADDRESS, served.port, timeout=30)
    connection.putrequest("GET", "/", skip_host=True)
    connection.putheader("Host", host)
    connection.endheaders()
    assert connection.getresponse().status in (400, 403)


def test_requests_of_other_sites_are_refused(served):
    for origin in ("http://evil.example", "null", f"http://127.0.0.1:{served.port + 1}"):
        assert ask(served, "/_dash-update-component", method="POST", Origin=origin)[0] == 403
    assert ask(served, "/", Origin=f"http://127.0.0.1:{served.port}")[0] == 200


def test_no_other_interface_listens(served):
    assert served.server.server_address[0] == "127.0.0.1"
    for address in _others():
        with socket.socket() as probe:
            probe.settimeout(2)
            assert probe.connect_ex((address, served.port)) != 0


def _others():
    """Addresses of this machine that are not 127.0.0.1; 127.0.0.2 is one on every Linux."""
    found = {"127.0.0.2"}
    with contextlib.suppress(OSError):
        found |= {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    return found - {"127.0.0.1"}


def test_answers_forbid_other_sources(client):
    answer = client.get("/", headers={"Host": "localhost"})
    assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_dev_tools_are_off(client):
    config = client.get("/", headers={"Host": "localhost"}).text
    assert '"ui":false' in config.replace(" ", "")
    assert client.get("/_reload-hash", headers={"Host": "localhost"}).status_code == 404


def test_a_port_in_use_is_named(served, small):
    with pytest.raises(ValueError, match=f"port={served.port} is in use; name another one, or port=0"):
        open_server(small, served.port)


NAVIGATE = ("url.search", "asked.data", "find.n_clicks", "search.n_submit"), ("search.value", "view.data")


def body_of(client, **changes):
    """A callback's JSON as the page sends it, with some of it replaced."""
    (output,) = [name for name in client.application.config["callbacks"] if "url.search" in name]
    inputs, state = (
        [dict(zip(("id", "property"), each.split("."), strict=True)) for each in part] for part in NAVIGATE
    )
    outputs = [dict(zip(("id", "property"), each.split("."), strict=True)) for each in output.strip(".").split("...")]
    body = {"output": output, "outputs": outputs, "inputs": inputs, "state": state, "changedPropIds": ["url.search"]}
    return {**body, **changes}


@pytest.fixture(scope="module")
def callbacks(small):
    app = make_app(small)
    app.server.config["callbacks"] = list(app.callback_map)
    return app.server.test_client()


def post(client, **kwargs):
    return client.post("/_dash-update-component", headers={"Host": "localhost"}, **kwargs)


def test_a_callback_of_the_page_is_answered(callbacks):
    assert post(callbacks, json=body_of(callbacks)).status_code == 200


@pytest.mark.parametrize(
    "changes",
    [
        {"output": "nothing.here"},
        {"output": None},
        {"outputs": 3},
        {"inputs": None},
        {"inputs": []},
        {"inputs": [{"id": "url"}]},
        {"inputs": ["url"]},
        {"state": [{"id": "search", "property": "value"}]},
        {"changedPropIds": [None]},
        {"changedPropIds": "url"},
    ],
)
def test_a_malformed_callback_is_a_bad_request(callbacks, capsys, changes):
    assert post(callbacks, json=body_of(callbacks, **changes)).status_code == 400
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"3", b'"text"', b"null", b"\xff\xfe", b"[" * 100_000])
def test_a_body_that_is_no_callback_is_a_bad_request(callbacks, capsys, content):
    assert post(callbacks, data=content, content_type="application/json").status_code == 400
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("view", [3, "text", {}, {"node": None}, {"other": 1}, {"layer": "x"}])
def test_a_view_that_the_page_never_had_is_a_bad_request(callbacks, capsys, view):
    from walksum.explore.view import View

    now = asdict(View()) | view if isinstance(view, dict) and view and "node" not in view else view
    body = body_of(callbacks)
    body["state"][1]["value"] = now
    assert post(callbacks, json=body).status_code == 400
    assert "Traceback" not in capsys.readouterr().err
