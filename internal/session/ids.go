package session

import (
	"crypto/rand"
)

// sessionIDPrefix is what the id of every session begins with.
const sessionIDPrefix = "s-"

// newID returns an id of 50 random bits: short enough to type, and unique among the
// millions that a daemon ever makes.
func newID(prefix string) string {
	const letters = "0123456789abcdefghijklmnopqrstuv"
	var b [10]byte
	_, _ = rand.Read(b[:]) // it never fails
	for i := range b {
		b[i] = letters[b[i]%byte(len(letters))]
	}
	return prefix + string(b[:])
}
