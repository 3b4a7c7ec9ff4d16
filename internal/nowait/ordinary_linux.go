//go:build race || !(amd64 || arm64)

package nowait

// raw is false where the race detector must see the calls, and where a position of a
// file takes two registers.
const raw = false
