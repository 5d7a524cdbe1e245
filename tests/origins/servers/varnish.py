"""Varnish before the application, which it does not cache here. It speaks no TLS."""

PACKAGES = ["varnish"]
LACKS = {
    "trailers": "it passes none on",
    "request-trailers": "it passes none on",
    "hints": "it passes none on",
    "file-ranges": "it fails by itself",
    "cut": "it fails or passes on what came, by chance",
    "file-gzip": "the application does not compress",
}


def start(site):
    vcl = site.write("default.vcl", f"""
vcl 4.1;
backend default {{ .host = "127.0.0.1"; .port = "{site.backend}"; }}
sub vcl_recv {{
    if (req.url ~ "^/app/limited") {{ return (synth(413)); }}
    return (pass);
}}
""")
    limits = [word for name in ("http_req_hdr_len=64k", "http_resp_hdr_len=64k", "http_req_size=128k", "http_resp_size=128k",
                                "workspace_client=512k", "workspace_backend=512k", "http_max_hdr=200") for word in ("-p", name)]
    for kind, more in (("http", []), ("idle-http", ["-p", "timeout_idle=1"])):
        site.spawn(["varnishd", "-F", "-a", f"127.0.0.1:{site.port(kind)}", "-f", vcl, "-n", site.path("varnish-" + kind), "-s", "malloc,16m",
                    *limits, *more])
