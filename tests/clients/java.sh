#!/usr/bin/env bash
# Java's HttpClient and HttpURLConnection, by JAVA_TOOL_OPTIONS alone.
# usage: java.sh BINARY
. "$(dirname "$0")/lib.sh"
need javac default-jdk-headless
cat > "$WORK/Fetch.java" <<'JAVA'
import java.net.*;
import java.net.http.*;

class Fetch {
    public static void main(String[] arguments) throws Exception {
        var client = HttpClient.newHttpClient();
        for (int i = 1; i < arguments.length; i++) {
            var url = URI.create(arguments[i]);
            int status = arguments[0].equals("client")
                ? client.send(HttpRequest.newBuilder(url).build(), HttpResponse.BodyHandlers.ofString()).statusCode()
                : ((HttpURLConnection) url.toURL().openConnection()).getResponseCode();
            System.out.println(url + " " + status);
        }
    }
}
JAVA
javac -d "$WORK" "$WORK/Fetch.java"
obeys java -cp "$WORK" Fetch client
obeys java -cp "$WORK" Fetch connection
