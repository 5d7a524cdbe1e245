"""The command `politely`, and a proxy for as long as a program runs.

    with politely.Proxy("--product-token", "ExampleBot") as proxy:
        ...  # proxy.url, proxy.ca_file, proxy.environment
"""

import atexit
import functools
import os
import shutil
import subprocess
import sys
import sysconfig

__all__ = ["Proxy", "Running", "find_binary", "shared"]

# Longer than `politely run` holds a request for its turn (`--max-wait`: 10 minutes). Seconds.
TIMEOUT = 660


class Running:
    """A proxy that runs already. `ca_file` (PEM) has the certificates to trust: `politely ca path` prints the proxy's own."""

    def __init__(self, url, ca_file):
        self.url = url
        self.ca_file = ca_file


class Proxy(Running):
    """Starts a proxy on a free loopback port, with options of `politely run`. `environment` is what `run` gives a command.

    The proxy stops when the program ends, in whatever way: it runs a `cat` that reads from this process.
    Raises RuntimeError if the proxy does not start; why is on standard error.
    """

    def __init__(self, *options):
        self._process = subprocess.Popen(
            [find_binary(), "run", *options, "--", "sh", "-c", "env -0 && printf '\\0' && exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C is for the program, which may still finish its requests.
            start_new_session=True,
        )
        atexit.register(self.close)
        printed = b""
        while not printed.endswith(b"\0\0"):
            byte = self._process.stdout.read(1)
            if not byte:
                self.close()
                raise RuntimeError(f"politely did not start: exit code {self._process.returncode}")
            printed += byte
        variables = os.fsdecode(printed[:-2]).split("\0")
        self.environment = dict(variable.split("=", 1) for variable in variables)
        super().__init__(self.environment["http_proxy"], self.environment["SSL_CERT_FILE"])

    def close(self):
        """Stops the proxy, which prints its summary on standard error."""
        atexit.unregister(self.close)
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


@functools.lru_cache(maxsize=None)
def shared(*options):
    """The proxy of this process with these options, started at the first call."""
    return Proxy(*options)


def find_binary():
    """Path of the command that was installed with this module, or else of the one on the PATH."""
    package = os.path.dirname(os.path.abspath(__file__))
    places = [
        sysconfig.get_path("scripts"),
        sysconfig.get_path("scripts", scheme=f"{os.name}_user"),
        # `pip install --target`
        os.path.join(os.path.dirname(package), "bin"),
        # `pip install --prefix`: PREFIX/lib/pythonX.Y/site-packages/politely
        os.path.abspath(os.path.join(package, *[".."] * 4, "bin")),
    ]
    for place in places:
        path = os.path.join(place, "politely")
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
    path = shutil.which("politely")
    if path is None:
        raise FileNotFoundError(f"no command `politely` in {', '.join(places)} or on the PATH ({sys.executable})")
    return path
