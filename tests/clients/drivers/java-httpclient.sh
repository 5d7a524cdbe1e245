# Java HttpClient
family=Java
quick=yes
install() { command -v javac > /dev/null || debian default-jdk-headless; }
version() { java -version 2>&1 | sed -n '1s/.*"\(.*\)".*/\1/p'; }
recipe Fetch.java <<'END'
import java.net.URI;
import java.net.http.*;

class Fetch {
    public static void main(String[] urls) throws Exception {
        var client = HttpClient.newHttpClient();
        for (var url : urls) {
            var response = client.send(HttpRequest.newBuilder(URI.create(url)).build(), HttpResponse.BodyHandlers.ofString());
            System.out.println(url + " " + response.statusCode());
        }
    }
}
END
fetch() {
    politely run java Fetch.java "$@"
}
bare() {
    politely run env -u JAVA_TOOL_OPTIONS java Fetch.java "$@"
}
