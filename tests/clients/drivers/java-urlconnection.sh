# Java HttpURLConnection
family=Java
install() { command -v javac > /dev/null || debian default-jdk-headless; }
version() { java -version 2>&1 | sed -n '1s/.*"\(.*\)".*/\1/p'; }
recipe Fetch.java <<'END'
import java.net.*;

class Fetch {
    public static void main(String[] urls) throws Exception {
        for (var url : urls) {
            System.out.println(url + " " + ((HttpURLConnection) new URL(url).openConnection()).getResponseCode());
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
