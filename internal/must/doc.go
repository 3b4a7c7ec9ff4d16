// Package must holds the promises that TRL is judged by, as tests against the
// real binary over its socket, with real shells and real processes: it leaves
// nothing behind, keeps its clocks, is fast, scales, survives garbage, and
// keeps secrets.
//
// The tests are named TestMust… and are run alone, because they measure. Time
// is judged as a ratio to something measured in the same run, but for the
// clocks that the contract itself names. Each prints one line with its figures.
// TRL_LONG=1 makes those as large as the promise is that would take too long for
// every change.
package must
