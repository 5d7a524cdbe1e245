# Ruby http.rb
#
# `HTTP.via(host, port)`.
family='Ruby, PHP, Perl'
quick=yes
install() { debian ruby ruby-http; }
version() { ruby -rhttp -e 'puts HTTP::VERSION'; }
recipe fetch.rb <<'END'
require "http"

proxy = URI(ENV["https_proxy"])
http = HTTP.via(proxy.host, proxy.port)
ARGV.each { |url| puts "#{url} #{http.get(url).status}" }
END
fetch() {
    politely run ruby fetch.rb "$@"
}
bare() {
    politely run ruby -rhttp -e 'ARGV.each { |url| HTTP.get(url, ssl_context: OpenSSL::SSL::SSLContext.new) rescue p $! }' "$@"
}
