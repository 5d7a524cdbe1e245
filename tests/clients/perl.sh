#!/usr/bin/env bash
# Perl's LWP, which reads the proxy's variables if PERL_LWP_ENV_PROXY says so.
# usage: perl.sh BINARY
. "$(dirname "$0")/lib.sh"
perl -MLWP::Protocol::https -e 1 2>/dev/null || fail "this needs LWP (Debian: apt-get install libwww-perl liblwp-protocol-https-perl)"
obeys perl -MLWP::UserAgent -e 'print LWP::UserAgent->new->get($_)->status_line, "\n" for @ARGV'
