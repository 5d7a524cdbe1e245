# PHP streams
#
# `proxy` in the context (`tcp://…`); for http also `request_fulluri`. `default_socket_timeout` 660.
family='Ruby, PHP, Perl'
install() { debian php-cli; }
version() { php -r 'echo PHP_VERSION;'; }
recipe fetch.php <<'END'
<?php
ini_set("default_socket_timeout", 660);
foreach (array_slice($argv, 1) as $url) {
    $proxy = str_replace("http://", "tcp://", getenv("https_proxy"));
    $http = ["proxy" => $proxy, "request_fulluri" => str_starts_with($url, "http:"), "ignore_errors" => true];
    file_get_contents($url, false, stream_context_create(["http" => $http]));
    echo "$url $http_response_header[0]\n";
}
END
fetch() {
    politely run php fetch.php "$@"
}
bare() {
    politely run php -r 'foreach (array_slice($argv, 1) as $url) @file_get_contents($url, false, stream_context_create(["ssl" => ["verify_peer" => false]]));' -- "$@"
}
