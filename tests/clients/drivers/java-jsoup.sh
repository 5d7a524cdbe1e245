# jsoup
#
# `timeout(0)`.
family=Java
install() { command -v javac > /dev/null || debian default-jdk-headless; debian libjsoup-java; }
version() { dpkg-query -W -f '${Version}' libjsoup-java; }
recipe Fetch.java <<'END'
import org.jsoup.Jsoup;

class Fetch {
    public static void main(String[] urls) throws Exception {
        for (var url : urls) {
            var response = Jsoup.connect(url).timeout(0).ignoreHttpErrors(true).ignoreContentType(true).execute();
            System.out.println(url + " " + response.statusCode());
        }
    }
}
END
fetch() {
    politely run java -cp /usr/share/java/jsoup.jar Fetch.java "$@"
}
bare() {
    politely run env -u JAVA_TOOL_OPTIONS java -cp /usr/share/java/jsoup.jar Fetch.java "$@"
}
