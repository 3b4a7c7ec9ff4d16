package session

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/printable"
)

// maxKey is how long a key may be, in bytes: it is kept as long as what it is for.
const maxKey = 256

func checkKey(key string) error {
	if len(key) <= maxKey && printable.Line(key) {
		return nil
	}
	return api.Errorf(api.CodeInvalidParams, "a key must be at most %d bytes on one line", maxKey).With("field", "key").
		WithHint("a random identifier will do")
}

// errOtherParams is the answer to a key that was used for something else.
func errOtherParams() *api.Error {
	return api.Errorf(api.CodeInvalidParams, "the key was used with other params").With("field", "key").
		WithHint("a repeat is the same in every param; something else needs a key of its own")
}

var sumTable = crc32.MakeTable(crc32.Castagnoli)

// sumOf tells params from others: those that are short, and texts that may be long.
// It is kept for as long as their key is, and too short to tell what they were. It is
// never 0, which says that it is not known.
func sumOf(params any, texts ...string) uint32 {
	text, err := json.Marshal(params)
	if err != nil {
		panic("session: params that came as JSON can't be JSON: " + err.Error())
	}
	sum := crc32.Update(0, sumTable, text)
	var part [4 << 10]byte
	for _, text := range texts {
		for len(text) > 0 {
			n := copy(part[:], text)
			sum, text = crc32.Update(sum, sumTable, part[:n]), text[n:]
		}
		sum = crc32.Update(sum, sumTable, []byte{0})
	}
	return max(sum, 1)
}

// hashOf stands for a key; 0: there is none.
func hashOf(key string) uint64 {
	if key == "" {
		return 0
	}
	sum := sha256.Sum256([]byte(key))
	return binary.LittleEndian.Uint64(sum[:]) | 1
}
