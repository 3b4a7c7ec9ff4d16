package release_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// brew implements what the formula uses of Homebrew: it evaluates the blocks of
// one platform, prints what it would download, and installs from an unpacked
// archive.
const brew = `
require "fileutils"
$system, $arch, $to, formula = ARGV
module OS; def self.mac? = $system == "darwin"; end
class Place
  def initialize(name)
    @name, @dir = name, File.join($to, name)
  end
  def /(name) = Place.new(File.join(@name, name))
  def install(*files)
    FileUtils.mkdir_p(@dir)
    files.flatten.each { |file| FileUtils.cp(file, @dir) }
  end
end
class Formula
  class << self
    attr_reader :fetched
    def desc(*) = nil
    def homepage(*) = nil
    def license(*) = nil
    def test = nil
    def version(v = nil) = @version = v || @version
    def url(u) = (@fetched ||= []) << u
    def sha256(s) = (@fetched ||= []) << s
    def on_macos = OS.mac? && yield
    def on_linux = !OS.mac? && yield
    def on_arm = $arch == "arm64" && yield
    def on_intel = $arch == "amd64" && yield
  end
  { bin: "bin", libexec: "libexec", man1: "share/man/man1", bash_completion: "etc/bash_completion.d",
    zsh_completion: "share/zsh/site-functions", fish_completion: "share/fish/vendor_completions.d" }.each do |name, dir|
    define_method(name) { Place.new(dir) }
  end
end
load formula
puts Trl.version, Trl.fetched
Trl.new.install
puts Trl.new.caveats.to_s.empty? ? "no caveats" : "caveats"
`

func TestFormula(t *testing.T) {
	r := openRelease(t)
	requirePrograms(t, "ruby", "tar")
	formula, err := filepath.Abs(r.path("trl.rb"))
	if err != nil {
		t.Fatal(err)
	}
	for _, platform := range platforms {
		archive, to := r.name(platform, ".tar.gz"), t.TempDir()
		unpacked := t.TempDir()
		output(t, exec.Command("tar", "-xzf", r.path(archive), "-C", unpacked, "--strip-components=1"))
		system, arch, _ := strings.Cut(platform, "_")
		cmd := exec.Command("ruby", "-W", "-e", brew, system, arch, to, formula)
		cmd.Dir = unpacked
		got := strings.Split(strings.TrimSpace(output(t, cmd)), "\n")
		caveats := map[string]string{"darwin": "caveats", "linux": "no caveats"}[system]
		want := []string{
			r.version, "https://github.com/terminal-runtime/trl/releases/download/v" + r.version + "/" + archive, r.sums[archive], caveats,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s differs (-want +got):\n%s", platform, diff)
		}
		names := []string{"bin/trl", "share/man/man1/trl.1", "share/zsh/site-functions/_trl"}
		if system == "darwin" {
			names = append(names, deliverable...)
		}
		for _, name := range names {
			if _, err := os.Stat(filepath.Join(to, name)); err != nil {
				t.Errorf("%s: %v", platform, err)
			}
		}
	}
}
