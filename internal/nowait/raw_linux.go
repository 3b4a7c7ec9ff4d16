//go:build !race && (amd64 || arm64)

package nowait

// raw is whether short calls go to the kernel without the scheduler: a constant, so
// that only one of the two ways is compiled.
const raw = true
