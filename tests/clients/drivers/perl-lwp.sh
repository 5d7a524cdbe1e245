# Perl LWP
#
# `timeout => 660`.
family='Ruby, PHP, Perl'
quick=yes
install() { debian libwww-perl liblwp-protocol-https-perl; }
version() { perl -MLWP -e 'print LWP->VERSION'; }
recipe fetch.pl <<'END'
use LWP::UserAgent;

my $agent = LWP::UserAgent->new(timeout => 660);
print "$_ ", $agent->get($_)->status_line, "\n" for @ARGV;
END
fetch() {
    politely run perl fetch.pl "$@"
}
bare() {
    politely run env -u PERL_LWP_ENV_PROXY perl fetch.pl "$@"
}
