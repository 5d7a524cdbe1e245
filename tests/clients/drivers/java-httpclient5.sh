# Apache HttpClient 5
#
# `HttpClients.createSystem()`. It comes back once.
family=Java
quick=yes
returns=yes
jars=$(echo /usr/share/java/{httpclient5,httpcore5,httpcore5-h2,slf4j-api}.jar | tr ' ' :)
install() { command -v javac > /dev/null || debian default-jdk-headless; debian libhttpclient5-java; }
version() { dpkg-query -W -f '${Version}' libhttpclient5-java; }
recipe Fetch.java <<'END'
import org.apache.hc.client5.http.classic.methods.HttpGet;
import org.apache.hc.client5.http.impl.classic.HttpClients;

class Fetch {
    public static void main(String[] urls) throws Exception {
        try (var client = HttpClients.createSystem()) {
            for (var url : urls) {
                System.out.println(url + " " + client.execute(new HttpGet(url), response -> response.getCode()));
            }
        }
    }
}
END
fetch() {
    politely run java -cp "$jars" Fetch.java "$@"
}
bare() {
    sed 's/createSystem/createDefault/' Fetch.java > Bare.java
    politely run java -cp "$jars" Bare.java "$@"
}
