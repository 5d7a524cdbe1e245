# Ruby Mechanize
#
# `agent.set_proxy(host, port)`. `read_timeout = 660`.
family='Ruby, PHP, Perl'
install() { debian ruby ruby-mechanize; }
version() { ruby -rmechanize -e 'puts Mechanize::VERSION'; }
recipe fetch.rb <<'END'
require "mechanize"

agent = Mechanize.new
agent.read_timeout = 660
agent.set_proxy(*URI(ENV["https_proxy"]).then { |proxy| [proxy.host, proxy.port] })
ARGV.each do |url|
  puts "#{url} #{agent.get(url).code}"
rescue Mechanize::ResponseCodeError => refused
  puts "#{url} #{refused.response_code}"
end
END
fetch() {
    politely run ruby fetch.rb "$@"
}
bare() {
    politely run ruby -rmechanize -e 'ARGV.each { |url| Mechanize.new { |agent| agent.verify_mode = 0 }.get(url) rescue p $! }' "$@"
}
