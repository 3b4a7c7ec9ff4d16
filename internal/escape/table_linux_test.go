package escape

import (
	"slices"
	"syscall"
)

// attempt is a row of the table: data, but for the function that tries.
type attempt struct {
	name  string
	group string
	try   func(*scene) error
	// who lists the users that the attempt runs as: for the others it is not possible
	// unconfined either.
	who []int
	// alone lists the fields of an isolation each of which must stop the attempt
	// without the others. The full confinement must stop every attempt.
	alone []string
	// absent lists the errnos by which a kernel without the feature refuses the
	// attempt unconfined. The row is then skipped on that kernel.
	absent []syscall.Errno
	// killed: a confinement may kill the process by this signal instead of an errno.
	killed syscall.Signal
	// with lists the fields and limits of the confinement that must stop the attempt;
	// nil means the full confinement.
	with []string
	// until is the Landlock ABI from which on an attempt of the second table is
	// refused; 0 means never.
	until int
	// changes: unconfined, the stage must see the change too.
	changes bool
	// ends: unconfined, the attempt ends the whole stage by this signal.
	ends syscall.Signal
	// prepare adds to the stage what only this attempt needs.
	prepare func(*stage) error
}

var (
	root = []int{0}
	user = []int{guestID}
	both = []int{0, guestID}
)

// find returns the row of either table with a name, or nil.
func find(name string) *attempt {
	for _, table := range [][]attempt{escapes(), permitted()} {
		if i := slices.IndexFunc(table, func(a attempt) bool { return a.name == name }); i >= 0 {
			return &table[i]
		}
	}
	return nil
}

// escapes returns the escape table.
func escapes() []attempt {
	return slices.Concat(writeAttempts(), readAttempts(), protectedAttempts(), processAttempts(), namespaceAttempts(),
		kernelAttempts(), deviceAttempts(), networkAttempts(), socketAttempts(), limitAttempts())
}
