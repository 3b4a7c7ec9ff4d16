// Package without runs programs as a kernel or a container engine would that forbids
// something: with real filters of system calls. Only tests import it.
package without
