# The application for Ruby's servers.
require "digest"
require "json"

ROOT = ENV.fetch("DOCROOT")
TEXT = { "content-type" => "text/plain" }.freeze

def whole(status, fields, body) = [status, fields.merge("content-length" => body.bytesize.to_s), [body]]

# Pieces with a pause between them.
def slowly(seconds, *pieces)
  Enumerator.new { |out| pieces.each_with_index { |piece, i| sleep(seconds) if i > 0; out << piece } }
end

def echo(env)
  body = env["rack.input"].read
  target = env["REQUEST_URI"].sub(%r{\Ahttps?://[^/]*}, "")
  fields = env.select { |name, _| name.start_with?("HTTP_") }.map { |name, value| [name[5..].tr("_", "-"), value] }
  told = { method: env["REQUEST_METHOD"], target: target, fields: fields, length: body.bytesize, sha256: Digest::SHA256.hexdigest(body), trailers: [] }
  whole(200, { "content-type" => "application/json" }, JSON.generate(told))
end

def app(name, env)
  case name
  when "chunked" then [200, TEXT, slowly(0.02, "one ", "two ", "three")]
  when "pause" then [200, TEXT, slowly(3, "before ", "after")]
  when "late" then sleep(3) && whole(200, TEXT, "late")
  when "slow" then sleep(0.1) && whole(200, TEXT, "slow")
  when "204" then [204, { "x-kind" => "none" }, []]
  when "headers" then whole(200, (0...30).to_h { |i| ["x-long-#{i}", (97 + i).chr * 1000] }, "30 KB of fields")
  when "cookies" then whole(200, { "set-cookie" => "a=1; Path=/\nb=1; Path=/; HttpOnly\nc=2; Max-Age=60" }, "cookies")
  when "redirect" then whole(307, { "location" => "/app/elsewhere?x=1#part" }, "elsewhere")
  when "teapot" then whole(418, { "x-kind" => "odd" }, "short and stout")
  when "big" then whole(200, { "content-type" => "application/octet-stream" }, "0123456789abcdef" * 65_536)
  else echo(env)
  end
end

run(lambda do |env|
  path = env["PATH_INFO"]
  next app(path[5..], env) if path.start_with?("/app/")
  next whole(301, { "location" => "/index.html" }, "moved") if path == "/old"

  name = File.expand_path(ROOT + path)
  next whole(404, TEXT, "not found") unless name.start_with?(ROOT + "/") && File.file?(name)
  next whole(405, { "allow" => "GET, HEAD" }, "no such method") unless %w[GET HEAD].include?(env["REQUEST_METHOD"])
  next [304, { "etag" => '"1"' }, []] if env["HTTP_IF_MODIFIED_SINCE"]

  whole(200, TEXT.merge("etag" => '"1"'), File.binread(name))
end)
