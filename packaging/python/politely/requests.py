"""requests through politely."""

import requests

import politely


def session(proxy=None):
    """A requests.Session through `proxy` (politely.Proxy or politely.Running), or else through the process's own."""
    proxy = proxy or politely.shared()
    session = requests.Session()
    # Variables of the environment would override the next two.
    session.trust_env = False
    session.proxies = {"http": proxy.url, "https": proxy.url}
    session.verify = proxy.ca_file
    return session
