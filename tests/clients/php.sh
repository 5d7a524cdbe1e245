#!/usr/bin/env bash
# PHP's streams, which read no proxy variable.
# usage: php.sh BINARY
. "$(dirname "$0")/lib.sh"
need php php-cli
goes_round php -r 'foreach (array_slice($argv, 1) as $url) var_dump(@file_get_contents($url));'
