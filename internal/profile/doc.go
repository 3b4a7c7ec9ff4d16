// Package profile has the named isolations of sessions, and the rule by which one
// isolation narrows another. It decides nothing about how they are enforced.
//
// The hosts of the package registries stand in registries.txt, the only file of the
// project that names such hosts.
package profile
