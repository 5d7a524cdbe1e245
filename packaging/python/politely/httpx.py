"""httpx through politely."""

import ssl

import httpx

import politely


def client(proxy=None, **options):
    """An httpx.Client through `proxy` (politely.Proxy or politely.Running), or else through the process's own."""
    return httpx.Client(**_through(proxy), **options)


def async_client(proxy=None, **options):
    """The same, an httpx.AsyncClient."""
    return httpx.AsyncClient(**_through(proxy), **options)


def _through(proxy):
    proxy = proxy or politely.shared()
    return {
        "proxy": proxy.url,
        "verify": ssl.create_default_context(cafile=proxy.ca_file),
        # A variable such as NO_PROXY would lead round the proxy.
        "trust_env": False,
        "timeout": httpx.Timeout(politely.TIMEOUT, connect=10, pool=None),
    }
