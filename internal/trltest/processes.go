package trltest

import (
	"fmt"
	"slices"
)

// Process is a process of this machine at the time it was read.
type Process struct {
	PID, PPID int
	State     string // as in /proc: R, S, Z, …
	Name      string

	start string // start time; with the pid it identifies the process even if the pid is reused
}

// String describes a process in a failure message.
func (p Process) String() string { return fmt.Sprintf("%d %s (%s)", p.PID, p.Name, p.State) }

// Descendants returns the children of a process, their children, and so on,
// including zombies.
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

// Remaining returns those of the processes that still exist, including zombies
// that have not been reaped.
func Remaining(processes []Process) []Process {
	var left []Process
	for _, now := range all() {
		if slices.ContainsFunc(processes, func(p Process) bool { return p.PID == now.PID && p.start == now.start }) {
			left = append(left, now)
		}
	}
	return left
}
