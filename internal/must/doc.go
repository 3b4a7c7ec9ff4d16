// Package must tests the guarantees that TRL is judged by, against the real
// binary over its socket, with real shells and real processes: it leaves nothing
// behind, keeps its time limits, is fast, scales, survives garbage, and keeps
// secrets.
//
// The tests are named TestMust… and run alone, because they measure. Times are
// judged as ratios to something measured in the same run, except for the time
// limits that the contract names. Each test prints one line with its figures.
// TRL_LONG=1 runs at full size those tests that would take too long for every
// change.
package must
