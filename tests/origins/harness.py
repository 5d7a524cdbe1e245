"""What every server of these tests stands on: certificates, files to serve, free ports, processes that end, curl."""

import contextlib
import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, field

HERE = os.path.dirname(os.path.abspath(__file__))
CACHE = os.environ.get("ORIGINS_CACHE", HERE + "/../../target/origins")
NAME = "a.localhost"
SECRET = "nobody is to read this"
ROBOTS = "User-agent: *\nDisallow: /private/\nDisallow: /app/private\nDisallow: /C%2B%2B/\n"


class NotInstalled(Exception):
    pass


class Site:
    """One server with its directory, its ports by name, and the application behind it."""

    def __init__(self, name):
        self.name, self.processes, self.ports, self.logs = name, [], {}, []
        self.directory = tempfile.mkdtemp(prefix=f"origins-{name}-")
        # Servers started as root read their files as somebody else.
        os.chmod(self.directory, 0o755)
        self.root = self.path("root")
        os.makedirs(self.root + "/private")
        self.write("root/robots.txt", ROBOTS)
        self.write("root/private/x.txt", SECRET)
        os.makedirs(self.root + "/C++")
        self.write("root/C++/x.txt", SECRET)
        self.write("root/index.html", "<!doctype html><title>index</title>" + "<p>words to compress</p>" * 100)
        self.write("root/big.bin", bytes(range(256)) * 4096)
        for file in ("robots.txt", "private/x.txt", "index.html", "big.bin"):
            # Servers hold the validators of a file that has just changed to be weak.
            os.utime(self.path("root", file), (1_700_000_000, 1_700_000_000))
        self.certificates()
        self.backend = int(self.spawn(["python3", HERE + "/backend.py", self.root], first_line=True))

    def path(self, *parts):
        return os.path.join(self.directory, *parts)

    def write(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        return self.path(name)

    def port(self, kind):
        """The port of the listener `kind`: http, tls (HTTP/1.1 alone), h2, or one of these with a habit before it."""
        if kind not in self.ports:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.ports[kind] = free.getsockname()[1]
        return self.ports[kind]

    def certificates(self):
        run = lambda *words: subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=self.directory)
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        run("req", "-x509", *key, "-days", "2", "-subj", "/CN=origins", "-addext", "basicConstraints=critical,CA:TRUE",
            "-addext", "keyUsage=critical,keyCertSign", "-keyout", "ca.key", "-out", "ca.pem")
        run("req", *key, "-subj", "/CN=" + NAME, "-keyout", "key.pem", "-out", "site.csr")
        self.write("ext", f"subjectAltName=DNS:{NAME}\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n")
        run("x509", "-req", "-in", "site.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-set_serial", "1", "-days", "2",
            "-extfile", "ext", "-out", "cert.pem")
        self.ca, self.cert, self.key = self.path("ca.pem"), self.path("cert.pem"), self.path("key.pem")
        with open(self.cert, "rb") as cert, open(self.key, "rb") as key:
            self.both = self.write("both.pem", cert.read() + key.read())

    def venv(self, *packages):
        """The `bin` of a Python environment that has these packages, made once."""
        place = os.path.join(os.path.realpath(CACHE), self.name)
        if not os.path.exists(place + "/done"):
            subprocess.run(["python3", "-m", "venv", place], check=True, capture_output=True)
            try:
                subprocess.run([place + "/bin/pip", "install", "-q", *packages], check=True, capture_output=True)
            except subprocess.CalledProcessError as error:
                raise NotInstalled(f"pip install {' '.join(packages)}") from error
            open(place + "/done", "w").close()
        return place + "/bin"

    def spawn(self, command, first_line=False, **more):
        if not shutil.which(command[0]):
            raise NotInstalled(command[0])
        log = open(self.path(f"log{len(self.processes)}"), "wb")
        self.logs.append(log.name)
        output = subprocess.PIPE if first_line else log
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=log, cwd=self.directory,
                                   start_new_session=True, **more)
        self.processes.append(process)
        return process.stdout.readline() if first_line else process

    def ready(self, seconds=30):
        """Waits until every port is listened on."""
        end = time.monotonic() + seconds
        for kind, port in self.ports.items():
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    ended = [process.args[0] for process in self.processes if process.poll() is not None]
                    if ended or time.monotonic() > end:
                        raise RuntimeError(f"{self.name} does not listen for {kind}; ended: {ended}\n{self.said()}")
                    time.sleep(0.05)

    def said(self):
        return "".join(open(log, errors="replace").read()[-2000:] for log in self.logs)

    def stop(self):
        # With what they have started themselves: each leads a session of its own.
        for process in reversed(self.processes):
            signal_group(process, signal.SIGTERM)
        for process in reversed(self.processes):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            signal_group(process, signal.SIGKILL)
            process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


def signal_group(process, number):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


class Proxy:
    """`politely serve` before one site."""

    def __init__(self, binary, site):
        self.site, self.ca = site, site.path("politely.pem")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        at = site.directory
        config = site.write(f"politely{self.port}.yaml", f"""
listen: [{{ address: '127.0.0.1:{self.port}' }}]
admin: {{ address: 'off' }}
identity: {{ product_tokens: [OriginsBot], contact: 'https://example.org/bot' }}
intercept: {{ ca: {{ directory: '{at}/authority' }} }}
store: {{ directory: '{at}/store{self.port}' }}
egress: {{ allow: [127.0.0.0/8, '::1/128'], ports: ['1-65535'], ca_file: '{site.ca}' }}
robots: {{ timeout: 30s }}
pace: {{ max_concurrent: 32 }}
""")
        environment = {key: value for key, value in os.environ.items()
                       if not key.startswith("POLITELY_") and not key.lower().endswith("_proxy")}
        self.process = site.spawn([binary, "serve", "--config", config], env=environment)
        self.log = site.logs[-1]
        site.ports["politely"] = self.port
        site.ready()
        del site.ports["politely"]
        with open(self.ca, "wb") as pem:
            subprocess.run([binary, "ca", "export", "--config", config], check=True, env=environment, stdout=pem)

    def arguments(self):
        return ["-x", f"http://127.0.0.1:{self.port}", "--cacert", self.ca]

    def said(self):
        return open(self.log, errors="replace").read()


@dataclass
class Answer:
    """What curl got: its exit code, interim statuses, status, fields and trailers in lower case, body."""

    code: int
    status: int = 0
    interim: list = field(default_factory=list)
    fields: list = field(default_factory=list)
    trailers: list = field(default_factory=list)
    body: bytes = b""
    seconds: float = 0.0
    first: float = 0.0

    def one(self, name):
        return next((value for key, value in self.fields if key == name), None)

    def refused(self):
        """By the proxy itself."""
        return "politely;" in (self.one("proxy-status") or "")


ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
LOCK, COUNT = threading.Lock(), [0]


def scratch(site):
    with LOCK:
        COUNT[0] += 1
        return site.path(f"scratch{COUNT[0]}")


def curl(site, arguments, stdin=None, limit=40):
    """curl with no configuration but these arguments; the last answer it saw."""
    file = scratch(site)
    command = ["curl", "-q", "-sS", "-g", "--path-as-is", "--suppress-connect-headers", "--max-time", str(limit),
               "-D", file + ".heads", "-o", file + ".body", "-w", "%{time_starttransfer}", *arguments]
    start = time.monotonic()
    ended = subprocess.run(command, input=stdin, capture_output=True, env=ENVIRONMENT)
    answer = parse(read(file + ".heads"))
    answer.code, answer.body, answer.seconds = ended.returncode, read(file + ".body"), time.monotonic() - start
    answer.first = float(ended.stdout or 0)
    for kind in (".heads", ".body"):
        if os.path.exists(file + kind):
            os.remove(file + kind)
    return answer


def statuses(site, arguments, urls, limit=60):
    """The statuses of many requests by one curl, in no order; 0 for one without an answer."""
    each = [word for url in urls for word in ("-o", "/dev/null", url)]
    command = ["curl", "-q", "-s", "-g", "--path-as-is", "--max-time", str(limit), "-w", "%{http_code}\n", *arguments, *each]
    output = subprocess.run(command, capture_output=True, env=ENVIRONMENT).stdout.decode()
    return sorted(int(line) for line in output.split())


def read(file):
    try:
        with open(file, "rb") as opened:
            return opened.read()
    except FileNotFoundError:
        return b""


def parse(heads):
    answer = Answer(code=0)
    for block in re.split(rb"\r?\n\r?\n", heads):
        lines = block.decode("latin-1").splitlines()
        if not lines:
            continue
        if not lines[0].startswith("HTTP/"):
            answer.trailers += fields_of(lines)
            continue
        if answer.status and answer.status < 200:
            answer.interim.append(answer.status)
        answer.status, answer.fields, answer.trailers = int(lines[0].split()[1]), fields_of(lines[1:]), []
    return answer


def fields_of(lines):
    pairs = (line.partition(":") for line in lines)
    return [(name.strip().lower(), value.strip()) for name, _, value in pairs]


def digest(body):
    return f"{len(body)} bytes {hashlib.sha256(body).hexdigest()[:12]} {body[:80]!r}"
