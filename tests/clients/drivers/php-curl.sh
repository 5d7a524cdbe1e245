# PHP curl
family='Ruby, PHP, Perl'
install() { debian php-cli php-curl; }
version() { php -r 'echo PHP_VERSION, " with curl ", curl_version()["version"];'; }
recipe fetch.php <<'END'
<?php
foreach (array_slice($argv, 1) as $url) {
    $curl = curl_init($url);
    curl_setopt($curl, CURLOPT_RETURNTRANSFER, true);
    curl_exec($curl);
    echo $url, " ", curl_getinfo($curl, CURLINFO_RESPONSE_CODE), "\n";
}
END
fetch() {
    politely run php fetch.php "$@"
}
