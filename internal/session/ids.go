package session

import (
	"crypto/rand"
)

// sessionIDPrefix is what the id of every session begins with, on any node.
const sessionIDPrefix = "s-"

// newNodeID returns an id with the name of the node after the prefix. A session or
// an exec has such an id, because a request may name it by nothing else. "" means
// no name.
func newNodeID(prefix, node string) string {
	if node != "" {
		prefix += node + "-"
	}
	return newID(prefix)
}

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
