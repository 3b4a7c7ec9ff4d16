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
	return nil
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
	// The service files for that system.
	service := map[string]string{"linux": "packaging/systemd", "darwin": "packaging/launchd"}[p.os]
	for below, dir := range map[string]string{"": r.stage, path.Base(service): service} {
		err := fs.WalkDir(os.DirFS(dir), ".", func(name string, file fs.DirEntry, err error) error {
			if err != nil || file.IsDir() {
				return err
			}
			if dir == r.stage && !strings.HasPrefix(name, "share/") && name != noticesName {
				return nil // binaries
			}
			text, err := os.ReadFile(filepath.Join(dir, name))
			entries = append(entries, archiveEntry{path.Join(below, name), text, 0o644})
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return entries, nil
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
