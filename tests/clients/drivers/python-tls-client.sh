# Python tls-client
#
# `session.proxies`, `timeout_seconds=660`; a session for each scheme (2.0.0 fails with one for both).
family=Python
quick=yes
install() { pypi tls-client typing_extensions; }
version() { pypi_version tls-client; }
recipe fetch.py <<'END'
import os
import sys
import tls_client

sessions = {scheme: tls_client.Session(client_identifier="chrome_120") for scheme in ["http", "https"]}
for url in sys.argv[1:]:
    session = sessions[url.partition(":")[0]]
    session.proxies = {"http": os.environ["https_proxy"]}
    print(url, session.get(url, timeout_seconds=660).status_code)
END
fetch() {
    politely run python fetch.py "$@"
}
bare() {
    politely run python -c 'import sys, tls_client; [tls_client.Session().get(url, insecure_skip_verify=True) for url in sys.argv[1:]]' "$@"
}
