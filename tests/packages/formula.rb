# Evaluates a release's formula as Homebrew does, with its words as far as the formula uses them, and installs by it.
#
# usage: ruby formula.rb DIRECTORY-OF-RELEASE PREFIX
require "digest"
require "fileutils"
require "pathname"

class Pathname
  # What Homebrew adds to it.
  def install(*names) = names.each { |name| FileUtils.cp_r(name, mkpath || self) }
end

class Formula
  class << self
    attr_reader :said, :test_block

    %i[desc homepage url version sha256 license].each do |word|
      define_method(word) { |value| (@said ||= {})[word] = value }
    end
    def depends_on(what) = ((@said ||= {})[:needs] ||= []).push(what)
    def test(&block) = @test_block = block
  end
  attr_reader :prefix, :testpath

  def initialize(prefix, testpath) = (@prefix, @testpath = prefix, testpath)
  def bin = prefix/"bin"
  def system(*command) = Kernel.system(*command.map(&:to_s), chdir: testpath) || abort("failed: #{command}")
end

release, prefix = ARGV.map { |path| Pathname(path).expand_path }
load (release/"politely.rb").to_s
said = Politely.said
archive = release/File.basename(said[:url])
Digest::SHA256.file(archive).hexdigest == said[:sha256] or abort "the checksum is another"
archive.basename.to_s.include?("-#{said[:version]}-") or abort "the version is another"
said[:url].start_with?("#{said[:homepage]}/") or abort "the homepage is another"
said[:needs] == [{ arch: :x86_64 }, :linux] && said[:license] == "Apache-2.0" && said[:desc].size < 80 or abort said.inspect
unpacked = prefix/"unpacked"
unpacked.mkpath
Kernel.system("tar", "-xzf", archive.to_s, "-C", unpacked.to_s) or abort "no archive"
formula = Politely.new(prefix/"cellar", prefix)
# The one folder in it.
Dir.chdir(unpacked.children.fetch(0)) { formula.install }
formula.instance_eval(&Politely.test_block)
Kernel.system((formula.bin/"politely").to_s, "--version") or abort "it does not run"
