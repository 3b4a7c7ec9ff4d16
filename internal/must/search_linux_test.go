package must

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// canary returns a random word that occurs only where the test puts it.
func canary() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // it never fails
	return "canary" + hex.EncodeToString(b[:])
}

// search looks for words in every place where one could be left. A place consists
// of its kind (answer, log, file, argv, environ) and its name.
type search struct {
	words  map[string][][]byte // each with the forms in which it may appear
	found  map[string][]string // the places, by word
	looked int                 // number of places examined
}

func newSearch(words ...string) *search {
	s := &search{words: map[string][][]byte{}, found: map[string][]string{}}
	for _, word := range words {
		s.words[word] = forms(word)
	}
	return s
}

// forms returns a word as it is and as part of base64, where it looks different
// at each of three positions.
func forms(word string) [][]byte {
	all := [][]byte{[]byte(word)}
	for shift := range 3 {
		coded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + word))
		// The first and last characters share bits with what is around.
		all = append(all, []byte(coded[4:len(coded)-4]))
	}
	return all
}

// text searches the text of one place.
func (s *search) text(place string, text []byte) {
	s.looked++
	for word, forms := range s.words {
		if holds(text, forms) && !slices.Contains(s.found[word], place) {
			s.found[word] = append(s.found[word], place)
		}
	}
}

func holds(text []byte, forms [][]byte) bool {
	return slices.ContainsFunc(forms, func(form []byte) bool { return bytes.Contains(text, form) })
}

// holds reports whether a text contains any of the words.
func (s *search) holds(text []byte) bool {
	for _, forms := range s.words {
		if holds(text, forms) {
			return true
		}
	}
	return false
}

// files searches the files below a directory that were written since a moment.
func (s *search) files(dir string, since time.Time) {
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return nil // ignore what is gone meanwhile or is not a file
		}
		if info, err := entry.Info(); err == nil && !info.ModTime().Before(since) {
			s.file("file "+path, path)
		}
		return nil
	})
}

// file searches a file of any size in pieces that overlap, so that no word is cut
// in two.
func (s *search) file(place, path string) {
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer f.Close()
	const piece, overlap = 1 << 20, 256
	buf := make([]byte, 0, piece+overlap)
	for {
		n, err := io.ReadFull(f, buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		s.text(place, buf)
		if err != nil {
			return
		}
		buf = buf[:copy(buf, buf[len(buf)-overlap:])]
	}
}

// processes searches the command lines of all processes, and the environments of
// those that were not given the word.
func (s *search) processes(given func(pid int) bool) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		s.file("argv of "+dir, filepath.Join(dir, "cmdline"))
		environ, err := os.ReadFile(filepath.Join(dir, "environ"))
		pid, err2 := strconv.Atoi(filepath.Base(dir))
		if err == nil && err2 == nil && (!s.holds(environ) || !given(pid)) {
			s.text("environ of "+dir, environ)
		}
	}
}

// kinds returns the kinds of place where a word was found.
func (s *search) kinds(word string) []string {
	var kinds []string
	for _, place := range s.found[word] {
		kind, _, _ := strings.Cut(place, " ")
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}
