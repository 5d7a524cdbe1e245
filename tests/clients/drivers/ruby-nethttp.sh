# Ruby Net::HTTP
family='Ruby, PHP, Perl'
quick=yes
install() { debian ruby; }
version() { ruby -e 'puts RUBY_VERSION'; }
recipe fetch.rb <<'END'
require "net/http"

ARGV.each { |url| puts "#{url} #{Net::HTTP.get_response(URI(url)).code}" }
END
fetch() {
    politely run ruby fetch.rb "$@"
}
