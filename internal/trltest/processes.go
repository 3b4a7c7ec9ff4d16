package trltest

import (
	"fmt"
	"slices"
)

// Process is one process of this machine, at the moment it was looked at.
type Process struct {
	PID, PPID int
	State     string // as in /proc: R, S, Z, …
	Name      string

	start string // with the pid, it is one process and not a later one
}

// String is how a process is named in a failure.
func (p Process) String() string { return fmt.Sprintf("%d %s (%s)", p.PID, p.Name, p.State) }

// Descendants returns the children of a process, theirs, and so on, zombies
// included.
func Descendants(pid int) []Process { return descendantsOf(all(), pid) }

func descendantsOf(processes []Process, pid int) []Process {
	var found []Process
	parents := []int{pid}
	for len(parents) > 0 {
		parent := parents[0]
		parents = parents[1:]
		for _, p := range processes {
			if p.PPID == parent {
				found = append(found, p)
				parents = append(parents, p.PID)
			}
		}
	}
	return found
}

// Remaining returns those of the processes that are still there. A zombie
// whose parent has not looked yet counts.
func Remaining(processes []Process) []Process {
	var left []Process
	for _, now := range all() {
		if slices.ContainsFunc(processes, func(p Process) bool { return p.PID == now.PID && p.start == now.start }) {
			left = append(left, now)
		}
	}
	return left
}
