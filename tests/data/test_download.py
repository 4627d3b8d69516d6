"""A file over HTTP from this machine to itself: resumed, checked, whole or absent."""

import hashlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from pamc.data.download import fetch, sha256_of
from pamc.errors import ConfigError, DataError, OutputError

CONTENT = np.random.default_rng(0).bytes(700_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves CONTENT; `cut_after` bytes of a reply, `ranges` and `says_length` set how well."""

    daemon_threads = True
    cut_after = None
    ranges = True
    says_length = True
    reset = False
    stall = False

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests = []
        self.release = threading.Event()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/set.npz"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        asked = self.headers.get("Range")
        server.requests.append(asked)
        if self.path != "/set.npz":
            self.send_error(404)
            return
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and server.ranges else 0
        if start >= len(CONTENT):
            self.send_error(416)
            return
        body = CONTENT[start:]
        self.send_response(206 if start else 200)
        if server.says_length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if server.cut_after is None else body[: server.cut_after])
        self.wfile.flush()
        if server.stall:
            server.release.wait(20)
        if server.reset:
            linger = b"\1\0\0\0\0\0\0\0"
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.close_connection = True

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.release.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def target(tmp_path):
    return tmp_path / "cache" / "set.npz"


def part_of(target):
    return target.with_name("set.npz.part")


def test_a_file_is_fetched_whole_and_no_part_stays(server, target):
    assert fetch(server.url, target, sha256=SHA256) == target
    assert target.read_bytes() == CONTENT
    assert not part_of(target).exists()
    assert server.requests == [None]


def test_a_checksum_in_capitals_is_the_same_checksum(server, target):
    assert fetch(server.url, target, sha256=SHA256.upper()).exists()


def test_progress_grows_to_the_total(server, target):
    calls = []
    fetch(server.url, target, sha256=SHA256, progress=lambda *call: calls.append(call))
    done = [call[0] for call in calls]
    assert done == sorted(set(done))
    assert calls[-1] == (len(CONTENT), len(CONTENT))


def test_progress_says_none_where_the_server_gives_no_length(server, target):
    server.says_length = False
    calls = []
    fetch(server.url, target, sha256=SHA256, progress=lambda *call: calls.append(call))
    assert calls[-1] == (len(CONTENT), None)


def test_a_truncated_first_try_is_resumed_by_range(server, target, refusal):
    server.cut_after = 300_000
    message = refusal(fetch, server.url, target, sha256=SHA256)
    assert "after 300000 of 700000 bytes" in message
    assert not target.exists()
    assert part_of(target).stat().st_size == 300_000
    server.cut_after = None
    calls = []
    fetch(server.url, target, sha256=SHA256, progress=lambda *call: calls.append(call))
    assert server.requests == [None, "bytes=300000-"]
    assert calls[0][0] > 300_000
    assert calls[-1] == (700_000, 700_000)
    assert target.read_bytes() == CONTENT


def test_a_server_without_ranges_sends_the_whole_again(server, target):
    server.ranges = False
    part_of(target).parent.mkdir()
    part_of(target).write_bytes(b"old bytes")
    fetch(server.url, target, sha256=SHA256)
    assert server.requests == ["bytes=9-"]
    assert target.read_bytes() == CONTENT


def test_a_part_longer_than_the_file_is_started_over(server, target):
    part_of(target).parent.mkdir()
    part_of(target).write_bytes(CONTENT + b"more")
    fetch(server.url, target, sha256=SHA256)
    assert server.requests == ["bytes=700004-", None]
    assert target.read_bytes() == CONTENT


def test_a_wrong_checksum_deletes_the_part_and_leaves_no_file(server, target, refusal):
    message = refusal(fetch, server.url, target, sha256="0" * 64)
    assert SHA256 in message
    assert "0" * 64 in message
    assert not target.exists()
    assert not part_of(target).exists()


def test_a_part_of_another_file_is_found_by_the_checksum_and_the_next_try_is_whole(server, target):
    part_of(target).parent.mkdir()
    part_of(target).write_bytes(b"x" * 1000)
    with pytest.raises(DataError, match="sha256"):
        fetch(server.url, target, sha256=SHA256)
    fetch(server.url, target, sha256=SHA256)
    assert target.read_bytes() == CONTENT


def test_a_wrong_checksum_leaves_an_older_file_alone(server, target):
    target.parent.mkdir()
    target.write_bytes(b"older")
    with pytest.raises(DataError):
        fetch(server.url, target, sha256="0" * 64)
    assert target.read_bytes() == b"older"


def test_a_user_who_interrupts_leaves_the_part_for_the_next_call(server, target):
    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(server.url, target, sha256=SHA256, progress=interrupt)
    done = part_of(target).stat().st_size
    assert 0 < done < len(CONTENT)
    fetch(server.url, target, sha256=SHA256)
    assert server.requests == [None, f"bytes={done}-"]
    assert target.read_bytes() == CONTENT


def test_an_address_that_is_not_there_is_refused_with_the_answer(server, target, refusal):
    assert "answered 404" in refusal(fetch, server.url + "x", target, sha256=SHA256)
    assert not target.exists()


def test_a_server_that_is_not_there_is_refused(target, refusal):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert "cannot be reached" in refusal(fetch, f"http://127.0.0.1:{port}/x", target, sha256=SHA256)


def test_a_connection_that_is_reset_keeps_what_came(server, target, refusal):
    server.cut_after, server.reset, server.stall = 300_000, True, False
    message = refusal(fetch, server.url, target, sha256=SHA256)
    assert "goes on from there" in message
    assert not target.exists()


def test_a_server_that_falls_silent_is_given_up(server, target, refusal):
    server.cut_after, server.stall = 300_000, True
    message = refusal(fetch, server.url, target, sha256=SHA256, timeout_s=0.3)
    assert "connection broke" in message
    assert not target.exists()


def test_a_folder_that_cannot_be_made_is_an_output_error(server, tmp_path, refusal):
    (tmp_path / "file").write_text("in the way")
    message = refusal(fetch, server.url, tmp_path / "file" / "set.npz", sha256=SHA256, error=OutputError)
    assert "cannot be written" in message


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://host/x", "set.npz"])
def test_only_web_addresses_are_fetched(target, refusal, url):
    assert "only http and https" in refusal(fetch, url, target, sha256=SHA256, error=ConfigError)


def test_the_checksum_of_a_file_is_that_of_its_bytes(tmp_path):
    (tmp_path / "x").write_bytes(CONTENT)
    assert sha256_of(tmp_path / "x") == SHA256
