// Package places tests the guarantees about places, as package must does for the
// rest: with the real binary, and real containers and SSH servers. A place is
// nearly as fast as this machine, one that lies or floods harms no other, and many
// of them leave nothing behind.
//
// TestMust… tests run alone, because they measure. TRL_LONG=1 runs them at full
// size.
package places
