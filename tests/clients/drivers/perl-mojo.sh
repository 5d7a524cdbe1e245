# Perl Mojo::UserAgent
#
# `$agent->proxy->detect`, `ca => $ENV{SSL_CERT_FILE}`, `inactivity_timeout => 660`.
family='Ruby, PHP, Perl'
install() { debian libmojolicious-perl libio-socket-ssl-perl; }
version() { perl -MMojolicious -e 'print Mojolicious->VERSION'; }
recipe fetch.pl <<'END'
use Mojo::UserAgent;

my $agent = Mojo::UserAgent->new(ca => $ENV{SSL_CERT_FILE}, inactivity_timeout => 660);
$agent->proxy->detect;
print "$_ ", $agent->get($_)->res->code, "\n" for @ARGV;
END
fetch() {
    politely run perl fetch.pl "$@"
}
bare() {
    politely run env -u HTTP_PROXY -u http_proxy -u HTTPS_PROXY -u https_proxy perl fetch.pl "$@"
}
