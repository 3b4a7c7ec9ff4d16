package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// archiveEntry is one file of an archive.
type archiveEntry struct {
	name    string // relative to the archive's directory
	content []byte
	mode    int64
}

// archives packs the binary of each platform with its documentation and service
// files.
func (r *release) archives() error {
	for _, p := range platforms {
		entries, err := r.contents(p)
		if err != nil {
			return err
		}
		packed, err := pack(r.name(p), r.made, entries)
		if err != nil {
			return err
		}
		if err := write(filepath.Join(r.out, r.name(p)+".tar.gz"), packed); err != nil {
			return err
		}
	}
	return r.programsArchive()
}

// programsDir is the directory of the programs that TRL delivers to places, in
// archives and below a prefix; see package place.
const programsDir = "libexec/trl/"

// programName returns the name of the program for a platform, which is Linux.
func programName(p platform) string { return programsDir + "trl-" + p.os + "-" + p.arch + ".gz" }

// programs compresses the binaries for Linux, for delivery to places.
func (r *release) programs() error {
	for _, p := range platforms {
		if p.os != "linux" {
			continue
		}
		binary, err := os.ReadFile(r.binary(p))
		if err != nil {
			return err
		}
		if err := write(filepath.Join(r.stage, programName(p)), compress(binary)); err != nil {
			return err
		}
	}
	return nil
}

// programsArchiveName is the prefix of the archive with the programs for Linux.
func (r *release) programsArchiveName() string { return "trl_" + r.version + "_linux_programs" }

// programsArchive packs the programs for Linux alone. The archives and packages for
// Linux lack the other architecture's, which would double their size for the few who
// need it.
func (r *release) programsArchive() error {
	licence, err := os.ReadFile("LICENSE")
	if err != nil {
		return err
	}
	entries := []archiveEntry{{"LICENSE", licence, 0o644}}
	staged, err := r.staged(func(name string) bool { return strings.HasPrefix(name, programsDir) || name == noticesName })
	if err != nil {
		return err
	}
	packed, err := pack(r.programsArchiveName(), r.made, append(entries, staged...))
	if err != nil {
		return err
	}
	return write(filepath.Join(r.out, r.programsArchiveName()+".tar.gz"), packed)
}

// contents returns the files of the archive for a platform.
func (r *release) contents(p platform) ([]archiveEntry, error) {
	binary, err := os.ReadFile(r.binary(p))
	if err != nil {
		return nil, err
	}
	entries := []archiveEntry{{"trl", binary, 0o755}}
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		entries = append(entries, archiveEntry{name, text, 0o644})
	}
	// Sessions on a Mac run in places, which are all Linux.
	staged, err := r.staged(func(name string) bool {
		return strings.HasPrefix(name, "share/") || name == noticesName || p.os == "darwin" && strings.HasPrefix(name, programsDir)
	})
	if err != nil {
		return nil, err
	}
	// The service files for that system.
	service := map[string]string{"linux": "packaging/systemd", "darwin": "packaging/launchd"}[p.os]
	services, err := entriesOf(service, path.Base(service), func(string) bool { return true })
	return slices.Concat(entries, staged, services), err
}

// staged returns the files of the temporary directory that include selects by name.
func (r *release) staged(include func(name string) bool) ([]archiveEntry, error) {
	return entriesOf(r.stage, "", include)
}

// entriesOf returns the files of dir that include selects by name, to be packed in
// below.
func entriesOf(dir, below string, include func(name string) bool) (entries []archiveEntry, err error) {
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, file fs.DirEntry, err error) error {
		if err != nil || file.IsDir() || !include(name) {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		entries = append(entries, archiveEntry{path.Join(below, name), text, 0o644})
		return err
	})
	return entries, err
}

// pack returns a compressed archive with one directory. It depends on its
// arguments alone, not on owners, times, modes or the order of files on this
// machine.
func pack(dir string, made time.Time, entries []archiveEntry) ([]byte, error) {
	slices.SortFunc(entries, func(a, b archiveEntry) int { return strings.Compare(a.name, b.name) })
	var packed bytes.Buffer
	archive := tar.NewWriter(&packed)
	for _, entry := range entries {
		err := archive.WriteHeader(&tar.Header{
			Name: dir + "/" + entry.name, Mode: entry.mode, Size: int64(len(entry.content)), ModTime: made,
			Uname: "root", Gname: "root", Format: tar.FormatUSTAR,
		})
		if err != nil {
			return nil, err
		}
		if _, err := archive.Write(entry.content); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	return compress(packed.Bytes()), nil
}

// compress returns content gzipped without a name or a time.
func compress(content []byte) []byte {
	var compressed bytes.Buffer
	w, err := gzip.NewWriterLevel(&compressed, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(content)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic(err) // writing to a buffer does not fail
	}
	return compressed.Bytes()
}
