package daemon

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"runtime"
	"sync"
)

// programDigest returns the SHA-256 of the program that this process runs, in hex,
// or "" if it can't be read. The file at its path may already be another one.
var programDigest = sync.OnceValue(func() string {
	if digest := deliveredDigest(); digest != "" {
		return digest
	}
	path := "/proc/self/exe"
	if runtime.GOOS != "linux" {
		path, _ = os.Executable()
	}
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
})
