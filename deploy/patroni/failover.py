#!/usr/bin/env python3
"""A failover by Patroni, under load: two PostgreSQL servers, etcd, a leafhopper and a leaf, all on this machine.

The machine of the leader dies: its Patroni and its PostgreSQL are killed. Patroni promotes the synchronous standby when
the leader's key has run out, and leafhopper goes on by itself. In the end each call is confirmed, and had one effect.

    apt-get install patroni etcd-server postgresql postgresql-client   # Debian 12
    cargo build && deploy/patroni/failover.py [CALLS]

LEAFHOPPER names another program than target/debug/leafhopper. Nothing listens but on 127.0.0.1, and nothing is left.
"""

import glob
import http.server
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.environ.get("LEAFHOPPER", os.path.join(HERE, "../../target/debug/leafhopper"))
CALLS = int(sys.argv[1]) if len(sys.argv) > 1 else 10000
PASSWORD = "throw-away"
# As short as Patroni takes it: 20 s of silence, and the leader's place is free.
TTL, LOOP, RETRY = 20, 2, 3
# What is waited for takes at most so long.
LIMIT = 180


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def until(what, look):
    """Looks until it is there; gives it."""
    end = time.monotonic() + LIMIT
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() > end:
            raise SystemExit(f"waited {LIMIT} s until {what}")
        time.sleep(0.05)


class Leaf(http.server.BaseHTTPRequestHandler):
    """Makes what it is asked to make, each time anew, and can be asked what there is."""

    protocol_version = "HTTP/1.1"
    effects, times, lock = {}, [], threading.Lock()

    def log_message(self, *_):
        pass

    def answer(self, status, body):
        body = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        key = self.path.rsplit("/", 1)[-1]
        with Leaf.lock:
            there = key in Leaf.effects
        self.answer(200 if there else 404, {"key": key})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with Leaf.lock:
            Leaf.effects[body["key"]] = Leaf.effects.get(body["key"], 0) + 1
            Leaf.times.append(time.monotonic())
        time.sleep(0.004)
        self.answer(201, body)


class Site:
    """Everything that runs, and the folder that it runs in."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="leafhopper-patroni-")
        self.started = []
        self.user = None
        if os.geteuid() == 0:
            # PostgreSQL does not run as root.
            self.user = pwd.getpwnam("postgres")
            os.chown(self.folder, self.user.pw_uid, self.user.pw_gid)
        self.bin = max(glob.glob("/usr/lib/postgresql/*/bin"))
        self.nodes = {name: {"pg": free_port(), "rest": free_port()} for name in ("one", "two")}

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def start(self, name, command, as_user=True):
        more = {}
        if as_user and self.user:
            more = {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []}
        with open(self.path(f"{name}.log"), "ab") as log:
            process = subprocess.Popen(
                command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **more
            )
        self.started.append(process)
        return process

    def url(self):
        hosts = ",".join(f"127.0.0.1:{node['pg']}" for node in self.nodes.values())
        return f"postgres://postgres:{PASSWORD}@{hosts}/postgres"

    def sql(self, text, check=True):
        url = self.url() + "?target_session_attrs=read-write&connect_timeout=2"
        command = ["psql", "--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1", url, "-c", text]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode and check:
            raise SystemExit(run.stderr)
        return None if run.returncode else run.stdout.strip()

    def members(self):
        """Name to role, as whichever Patroni answers says."""
        for node in self.nodes.values():
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{node['rest']}/cluster", timeout=2) as answer:
                    return {member["name"]: member["role"] for member in json.load(answer)["members"]}
            except OSError:
                continue
        return {}

    def patroni(self, name, etcd):
        node = self.nodes[name]
        user = {"username": "postgres", "password": PASSWORD}
        config = {
            "scope": "leafhopper",
            "name": name,
            "restapi": {"listen": f"127.0.0.1:{node['rest']}", "connect_address": f"127.0.0.1:{node['rest']}"},
            "etcd3": {"host": f"127.0.0.1:{etcd}"},
            "bootstrap": {
                "dcs": {
                    "ttl": TTL,
                    "loop_wait": LOOP,
                    "retry_timeout": RETRY,
                    # Only a standby that has every commit takes the leader's place.
                    "synchronous_mode": True,
                },
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}],
            },
            "postgresql": {
                "listen": f"127.0.0.1:{node['pg']}",
                "connect_address": f"127.0.0.1:{node['pg']}",
                "bin_dir": self.bin,
                "data_dir": self.path(name),
                "pgpass": self.path(f"{name}.pgpass"),
                "authentication": {"superuser": user, "replication": user},
                "parameters": {"unix_socket_directories": self.folder},
                "pg_hba": ["local all all trust", "host all all 127.0.0.1/32 md5", "host replication all 127.0.0.1/32 md5"],
            },
        }
        file = self.path(f"{name}.yml")
        with open(file, "w", encoding="utf-8") as out:
            # JSON is YAML.
            json.dump(config, out)
        node["patroni"] = self.start(name, ["patroni", file])

    def kill(self, name):
        """As when the machine loses its power."""
        self.nodes[name]["patroni"].kill()
        with open(self.path(name, "postmaster.pid"), encoding="utf-8") as file:
            postmaster = int(file.readline())
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(postmaster)], capture_output=True, text=True, check=False)
        for pid in [postmaster, *map(int, children.stdout.split())]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def end(self):
        for process in reversed(self.started):
            if process.poll() is None:
                process.terminate()
        for process in reversed(self.started):
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def story(site):
    etcd, peer = free_port(), free_port()
    clients = f"http://127.0.0.1:{etcd}"
    site.start("etcd", ["etcd", "--data-dir", site.path("etcd"), "--listen-client-urls", clients,
                        "--advertise-client-urls", clients, "--listen-peer-urls", f"http://127.0.0.1:{peer}"])  # fmt: skip
    until("etcd takes connections", lambda: not socket.socket().connect_ex(("127.0.0.1", etcd)))
    for name in site.nodes:
        site.patroni(name, etcd)
    until("there are a leader and a synchronous standby",
          lambda: sorted(site.members().values()) == ["leader", "sync_standby"])  # fmt: skip

    leaf = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Leaf)
    threading.Thread(target=leaf.serve_forever, daemon=True).start()
    config = site.path("leafhopper.toml")
    with open(config, "w", encoding="utf-8") as out:
        out.write(
            f'[database]\nurl = "{site.url()}"\n[listen]\naddress = "127.0.0.1:{free_port()}"\n'
            f'[leaf.leaf]\nbase_url = "http://127.0.0.1:{leaf.server_port}"\nconcurrency = 16\n'
            '[leaf.leaf.probe]\npath = "/effects/{{ call.key }}"\nsettle = "1s"\n'
            'found = "response.body if response.body.key == call.key"\n'
        )
    subprocess.run([PROGRAM, "migrate", "--config", config], check=True)
    site.start("leafhopper", [PROGRAM, "run", "--config", config], as_user=False)
    site.sql("INSERT INTO leafhopper.outbox (leaf, key, path, body) SELECT 'leaf', 'k' || n, '/', "
             f"jsonb_build_object('key', 'k' || n) FROM generate_series(1, {CALLS}) n")  # fmt: skip
    until("a quarter is sent", lambda: len(Leaf.times) > CALLS / 4)

    leader = next(name for name, role in site.members().items() if role == "leader")
    gone = time.monotonic()
    site.kill(leader)
    print(f"{leader} was the leader, and is gone; Patroni waits for up to {TTL} s")
    until("another one takes writes", lambda: site.sql("CREATE TEMPORARY TABLE t ()", check=False) is not None)
    promoted = time.monotonic()
    until("all calls are confirmed",
          lambda: site.sql("SELECT count(*) FROM leafhopper.call WHERE state <> 'confirmed'", check=False) == "0")  # fmt: skip
    # What was under way as the leader went is sent within moments.
    first = next(at for at in sorted(Leaf.times) if at > gone + 2)
    print(f"the other one takes writes after {promoted - gone:.1f} s; calls go on after {first - gone:.1f} s")
    kept = int(site.sql("SELECT count(*) FROM leafhopper.outbox"))
    doubled = {key: count for key, count in Leaf.effects.items() if count != 1}
    if kept != CALLS or len(Leaf.effects) != CALLS or doubled:
        raise SystemExit(f"{kept} calls of {CALLS} are there, {len(Leaf.effects)} had an effect, not once: {doubled}")
    print(f"{CALLS} calls, each confirmed, each with one effect")


def main():
    site = Site()
    try:
        story(site)
    except BaseException:
        for file in glob.glob(site.path("*.log")):
            with open(file, encoding="utf-8", errors="replace") as log:
                print(f"--- {file}", *log.readlines()[-15:], sep="\n", file=sys.stderr)
        raise
    finally:
        site.end()


main()
