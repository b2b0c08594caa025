"""What is shown at a daemon's door: from where it comes, and where it must not go."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from pathlib import Path

import pytest

from deepprof.collectors.errors import UsageError
from deepprof.live.client.credentials import Credentials, choose_credentials, read_certificate, read_token
from deepprof.live.client.endpoint import find_endpoint


@pytest.fixture
def token(tmp_path):
    file = tmp_path / "token"
    file.write_text("let-me-in\n")
    file.chmod(0o600)
    return file


def test_the_token_is_the_files_one_line(token):
    assert read_token(str(token)) == "let-me-in"
    assert find_endpoint("unix:/x", Credentials(str(token)), {}).metadata() == (("authorization", "Bearer let-me-in"),)


def test_a_token_that_is_renewed_is_used(token):
    endpoint = find_endpoint("unix:/x", Credentials(str(token)), {})
    token.write_text("another")
    assert endpoint.metadata() == (("authorization", "Bearer another"),)


def test_a_token_that_others_can_read_is_warned_of(token):
    token.chmod(0o640)
    with pytest.warns(UserWarning, match="chmod 600"):
        assert read_token(str(token)) == "let-me-in"


@pytest.mark.parametrize("content", [b"", b"\n", b"two words", b"a\nb", "ü".encode(), b"\xff", b"a\0b", b"x" * 5000])
def test_what_is_no_token_is_refused(token, content):
    token.write_bytes(content)
    with pytest.raises(UsageError) as told:
        read_token(str(token))
    assert str(token) in str(told.value)
    assert str(told.value).isprintable()


@pytest.mark.parametrize("make", [lambda path: None, os.mkdir, os.mkfifo])
def test_what_is_no_file_is_refused_at_once(tmp_path, make):
    path = str(tmp_path / "odd")
    make(path)
    with pytest.raises(UsageError, match="odd"):
        read_token(path)
    with pytest.raises(UsageError, match="odd"):
        read_certificate(path)


def test_a_token_goes_nowhere_unencrypted(token):
    with pytest.raises(UsageError, match="unencrypted; give --ca FILE"):
        find_endpoint("node-7:7600", Credentials(str(token)), {})
    with pytest.raises(UsageError, match="unencrypted"):
        find_endpoint("node-7:7600", None, {"DEEPPROF_TOKEN_FILE": str(token)})
    for local in ("unix:/x", "127.0.0.1:1", "[::1]:1", "localhost:1"):
        assert find_endpoint(local, Credentials(str(token)), {}).metadata()
    assert find_endpoint("node-7:7600", Credentials(str(token), ca="ca.pem"), {}).credentials.is_tls


def test_the_environment_says_what_nobody_else_does():
    environ = {"DEEPPROF_CA": "a", "DEEPPROF_CERT": "c", "DEEPPROF_KEY": "k", "DEEPPROF_TOKEN_FILE": ""}
    assert choose_credentials(Credentials(), environ) == Credentials(None, "a", "c", "k")
    assert choose_credentials(Credentials(ca="b"), environ).ca == "b"
    assert choose_credentials(Credentials(cert="d", key="e"), environ) == Credentials(None, "a", "d", "e")


def test_half_a_certificate_is_refused():
    for half in (Credentials(cert="c"), Credentials(key="k")):
        with pytest.raises(UsageError, match="--cert and --key"):
            choose_credentials(half, {"DEEPPROF_CERT": "c", "DEEPPROF_KEY": "k"})


def test_the_address_is_given_else_in_the_environment_else_the_default(tmp_path):
    environ = {"DEEPPROF_DAEMON": "host:1", "XDG_RUNTIME_DIR": "/run/user/7"}
    assert str(find_endpoint("host:2", None, environ).address) == "host:2"
    assert str(find_endpoint(None, None, environ).address) == "host:1"
    del environ["DEEPPROF_DAEMON"]
    assert str(find_endpoint(None, None, environ).address) == "unix:/run/user/7/deepprof/deepprof.sock"


def test_a_certificate_must_look_like_one(tmp_path):
    file = tmp_path / "ca.pem"
    file.write_text("no certificate")
    with pytest.raises(UsageError, match="BEGIN"):
        read_certificate(str(file))
    assert read_certificate(None) is None


def test_certificates_are_no_matter_of_a_unix_socket():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert find_endpoint("unix:/x", Credentials(ca="/absent"), {}).tls() is None


def test_the_machines_daemon_is_found_where_the_user_runs_none(monkeypatch, request):
    tmp_path = Path(tempfile.mkdtemp(prefix="dp-"))  # a socket's path is short
    request.addfinalizer(lambda: shutil.rmtree(tmp_path))
    monkeypatch.setattr("deepprof.live.wire.addresses.SYSTEM", str(tmp_path / "none"))
    variables = {"XDG_RUNTIME_DIR": str(tmp_path / "run"), "HOME": str(tmp_path / "home")}
    own = f"unix:{tmp_path}/run/deepprof/deepprof.sock"
    shared = tmp_path / "home/.local/state/deepprof/deepprof.sock"
    assert str(find_endpoint(None, None, variables).address) == own
    shared.parent.mkdir(parents=True)
    shared.touch()
    assert str(find_endpoint(None, None, variables).address) == f"unix:{shared}"
    (tmp_path / "run/deepprof").mkdir(parents=True)
    (tmp_path / "run/deepprof/deepprof.sock").touch()
    assert str(find_endpoint(None, None, variables).address) == own
