// Package place keeps the places of a daemon: where else sessions can run, and how
// to reach the TRL there. A place is found by a runtime such as docker:web or
// ssh:build, and known by a short name that is part of the ids of its sessions.
package place
