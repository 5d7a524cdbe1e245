# PHP Guzzle
family='Ruby, PHP, Perl'
install() { debian php-cli php-curl php-guzzlehttp-guzzle; }
version() { dpkg-query -W -f '${Version}' php-guzzlehttp-guzzle; }
recipe fetch.php <<'END'
<?php
require "GuzzleHttp/autoload.php";
$client = new GuzzleHttp\Client(["http_errors" => false]);
foreach (array_slice($argv, 1) as $url) {
    echo $url, " ", $client->get($url)->getStatusCode(), "\n";
}
END
fetch() {
    politely run php fetch.php "$@"
}
