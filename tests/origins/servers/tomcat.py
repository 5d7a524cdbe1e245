"""Tomcat: files alone, over HTTP/1.1 and HTTP/2."""

import os

PACKAGES = ["tomcat10", "default-jre-headless"]
ONLY = ["file", "file-head", "file-large", "file-range", "file-404", "file-304", "file-options", "disallowed"]
# It leaves out of each segment what follows a semicolon.
SPELLINGS = ["/private;x/x.txt", "/;a/private/x.txt", "/a/..;/private/x.txt", "/a/..;x=1/private/x.txt", "/private/;/x.txt",
             "/.;/private/x.txt", "/private/x.txt;j=1", "/a/%2e%2e;/private/x.txt"]
HOME = "/usr/share/tomcat10"


def start(site):
    for name in ("conf", "logs", "temp", "work", "webapps"):
        os.makedirs(site.path("tomcat", name))
    secure = 'SSLEnabled="true" scheme="https" secure="true"'
    host = f'<SSLHostConfig><Certificate certificateFile="{site.cert}" certificateKeyFile="{site.key}"/></SSLHostConfig>'
    upgrade = '<UpgradeProtocol className="org.apache.coyote.http2.Http2Protocol"/>'
    connector = lambda kind, more="", inside="": f'<Connector address="127.0.0.1" port="{site.port(kind)}" {more}>{inside}</Connector>'
    site.write("tomcat/conf/web.xml", open("/etc/tomcat10/web.xml").read())
    site.write("tomcat/conf/server.xml", f"""
<Server port="-1">
  <Service name="Catalina">
    {connector("http")} {connector("tls", secure, host)} {connector("h2", secure, host + upgrade)}
    <Engine name="Catalina" defaultHost="localhost">
      <Host name="localhost" appBase="webapps"><Context path="" docBase="{site.root}"/></Host>
    </Engine>
  </Service>
</Server>
""")
    classes = f"{HOME}/bin/bootstrap.jar:{HOME}/bin/tomcat-juli.jar"
    site.spawn(["java", "-Xmx128m", "-cp", classes, f"-Dcatalina.home={HOME}", f"-Dcatalina.base={site.path('tomcat')}",
                "org.apache.catalina.startup.Bootstrap", "start"])
