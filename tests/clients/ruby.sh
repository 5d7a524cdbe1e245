#!/usr/bin/env bash
# Ruby's Net::HTTP, and Mechanize, which reads no proxy variable.
# usage: ruby.sh BINARY
. "$(dirname "$0")/lib.sh"
need ruby ruby
obeys ruby -rnet/http -e 'ARGV.each { |url| p Net::HTTP.get_response(URI(url)).code }'
if ruby -rmechanize -e 1 2>/dev/null; then
    goes_round ruby -rmechanize -e 'ARGV.each { |url| Mechanize.new.get(url) rescue p $! }'
fi
