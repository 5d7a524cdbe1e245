# For a tap. packaging/release fills in version, address and checksum.
class Politely < Formula
  desc "Forward proxy that makes any crawler obey robots.txt"
  homepage "@REPOSITORY@"
  url "@URL@/@ARCHIVE@"
  version "@VERSION@"
  sha256 "@SHA256@"
  license "Apache-2.0"

  depends_on arch: :x86_64
  depends_on :linux

  def install
    prefix.install "bin", "share"
  end

  test do
    (testpath/"robots.txt").write "User-agent: *\nDisallow: /private/\n"
    system bin/"politely", "lint", "robots.txt"
  end
end
