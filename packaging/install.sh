#!/bin/sh
# Installs trl for the current user, without asking for more rights:
#
#   curl -fsSL https://github.com/terminal-runtime/trl/releases/latest/download/install.sh | sh
#   sh install.sh --prefix /usr/local --version v1.2.3
#
# It downloads the archive for this machine and the release's checksums, and
# installs nothing until the archive's checksum is verified. TRL_BASE_URL
# overrides the download location of both.
set -eu

releases=https://github.com/terminal-runtime/trl/releases

usage() {
	cat <<'END'
usage: install.sh [--prefix DIR] [--version VERSION]

  --prefix DIR       install below DIR: bin/trl, the manual and completions in
                     share, on macOS the programs for Linux in libexec/trl
                     (default ~/.local)
  --version VERSION  a release, such as v1.2.3 (default: the latest)

TRL_BASE_URL overrides the location of the archives and checksums.txt.
END
}

say() { printf 'trl: %s\n' "$*"; }

fail() {
	printf 'trl: %s\ntrl: nothing was installed\n' "$*" >&2
	exit 1
}

has() { command -v "$1" >/dev/null 2>&1; }

# fetch URL FILE. Redirects must stay on https.
fetch() {
	if has curl; then
		case $1 in
		https://*) curl --proto '=https' --tlsv1.2 -fsSL -o "$2" "$1" ;;
		*) curl -fsSL -o "$2" "$1" ;;
		esac
	elif has wget; then
		case $1 in
		https://*) secure_wget "$1" "$2" ;;
		*) wget -q -O "$2" "$1" ;;
		esac
	else
		fail "neither curl nor wget is installed to fetch $1"
	fi || fail "can't fetch $1"
}

# secure_wget URL FILE. GNU wget has no flag that keeps redirects on https, so
# other protocols go to a proxy that does not exist. Busybox wget would use the
# same proxy for https, and does not check certificates anyway.
secure_wget() {
	case $(wget --version 2>/dev/null || :) in
	"GNU Wget"*)
		wget -q -e use_proxy=on -e no_proxy= -e http_proxy=http://127.0.0.1:1/ -e ftp_proxy=http://127.0.0.1:1/ -O "$2" "$1"
		;;
	*)
		say "this wget does not check certificates: install curl or GNU wget to verify the origin of $1"
		wget -q -O "$2" "$1"
		;;
	esac
}

# sum FILE prints its SHA-256.
sum() {
	if has sha256sum; then
		sha256sum <"$1"
	elif has shasum; then
		shasum -a 256 <"$1"
	else
		openssl dgst -sha256 -r <"$1"
	fi | cut -d ' ' -f 1
}

# platform prints the system and the processor as in the archive names.
platform() {
	case $(uname -s) in
	Linux) system=linux ;;
	Darwin) system=darwin ;;
	*) fail "no trl for $(uname -s); build it from source" ;;
	esac
	case $(uname -m) in
	x86_64 | amd64) arch=amd64 ;;
	aarch64 | arm64) arch=arm64 ;;
	*) fail "no trl for $(uname -m) processors; build it from source" ;;
	esac
	printf '%s_%s' "$system" "$arch"
}

# place FROM TO copies the files below a directory.
place() {
	(cd "$1" && find . -type f) | while read -r file; do
		mkdir -p "$2/$(dirname "$file")"
		cp "$1/$file" "$2/$file"
		chmod 644 "$2/$file"
	done
}

main() {
	prefix=${HOME:-}/.local
	version=
	while [ $# -gt 0 ]; do
		case $1 in
		--prefix | --version)
			[ $# -gt 1 ] || fail "$1 needs a value"
			if [ "$1" = --prefix ]; then prefix=$2; else version=$2; fi
			shift 2
			;;
		-h | --help)
			usage
			exit
			;;
		*)
			usage >&2
			fail "unknown argument $1"
			;;
		esac
	done
	# The version becomes part of a URL and of a file name.
	case $version in
	*[!0-9A-Za-z.+-]*) fail "a version looks like v1.2.3, not $version" ;;
	esac
	case $prefix in
	/?*) ;;
	*) fail "the prefix must be an absolute path: set one with --prefix" ;;
	esac

	if [ -n "${TRL_BASE_URL:-}" ]; then
		base=${TRL_BASE_URL%/}
	elif [ -n "$version" ]; then
		base=$releases/download/v${version#v}
	else
		base=$releases/latest/download
	fi
	case $base in
	https://* | file://*) ;;
	*) say "$base is not https: its checksums detect damage, not tampering" ;;
	esac

	has sha256sum || has shasum || has openssl ||
		fail "none of sha256sum, shasum and openssl is installed to verify the download"
	target=$(platform)
	work=$(mktemp -d "${TMPDIR:-/tmp}/install-trl.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	trap 'exit 1' HUP INT TERM

	fetch "$base/checksums.txt" "$work/checksums.txt"
	# The archive's name contains the version.
	line=$(grep "  trl_[^ /]*_$target\.tar\.gz\$" "$work/checksums.txt" || :)
	if [ -n "$version" ]; then
		line=$(printf '%s\n' "$line" | grep -F "  trl_${version#v}_$target.tar.gz" || :)
	fi
	[ "$(printf '%s\n' "$line" | grep -c .)" = 1 ] ||
		fail "$base/checksums.txt does not name one archive for $target${version:+ and $version}"
	wanted=${line%% *}
	archive=${line##* }

	say "fetching $base/$archive"
	fetch "$base/$archive" "$work/$archive"
	found=$(sum "$work/$archive")
	[ "$found" = "$wanted" ] ||
		fail "checksum mismatch: the SHA-256 of $archive is $found, want $wanted"

	tar -xzf "$work/$archive" -C "$work" || fail "can't unpack $archive"
	unpacked=$work/${archive%.tar.gz}

	bin=$prefix/bin
	mkdir -p "$bin" 2>/dev/null || :
	[ -w "$bin" ] || fail "can't write to $bin: choose another --prefix, or run this as a user who can"
	# Try the binary where it will be, and move it into place in one step: a
	# running daemon keeps the old one until it is upgraded.
	new=$bin/.trl.$$
	trap 'rm -rf "$work" "$new"' EXIT
	cp "$unpacked/trl" "$new" || fail "can't write to $bin"
	chmod 755 "$new"
	installed=$("$new" version) || fail "the binary does not run on this machine"
	case $installed in
	"trl "?*) ;;
	*) fail "the binary does not report a version of trl" ;;
	esac
	[ ! -e "$bin/trl" ] || say "replacing $("$bin/trl" version 2>/dev/null || echo "$bin/trl"); run trl upgrade to update a running daemon"
	mv -f "$new" "$bin/trl"
	place "$unpacked/share" "$prefix/share"
	# The programs for places that run Linux, which archives for macOS have.
	[ ! -d "$unpacked/libexec" ] || place "$unpacked/libexec" "$prefix/libexec"

	say "$installed is in $bin"
	first=$(command -v trl || :)
	case :$PATH: in
	*":$bin:"*)
		[ "$first" = "$bin/trl" ] || say "but $first comes first in PATH"
		;;
	*) say "it is not in your PATH yet:  export PATH=\"$bin:\$PATH\"" ;;
	esac
	[ "${target%_*}" = linux ] || say "sessions run in containers or on Linux machines: set default_runtime, as docs/macos.md explains"
}

# This is the last line, so that a truncated script does nothing.
main "$@"
