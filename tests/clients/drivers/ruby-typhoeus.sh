# Ruby Typhoeus
#
# `cainfo: ENV["CURL_CA_BUNDLE"]`.
family='Ruby, PHP, Perl'
quick=yes
install() { debian ruby ruby-typhoeus; }
version() { ruby -rtyphoeus -e 'puts Typhoeus::VERSION'; }
recipe fetch.rb <<'END'
require "typhoeus"

hydra = Typhoeus::Hydra.new
ARGV.each do |url|
  request = Typhoeus::Request.new(url, cainfo: ENV["CURL_CA_BUNDLE"])
  request.on_complete { |response| puts "#{url} #{response.code}" }
  hydra.queue(request)
end
hydra.run
END
fetch() {
    politely run ruby fetch.rb "$@"
}
