package holder

import "testing"

// The exit of a process is remembered as long as any other, if an earlier process
// had the same pid.
func TestReusedPIDIsRemembered(t *testing.T) {
	const reused = 1 << 29 // above the largest pid of Linux, so it is no child of this process
	exit := func(pid int) exitState { return exitState{pid: pid, exited: true, cpu: int64(pid)} }
	for name, between := range map[string]func(*table){
		"tracked":   func(tb *table) { tb.track(reused) },
		"untracked": func(*table) {},
	} {
		t.Run(name, func(t *testing.T) {
			h := &holder{table: newTable()}
			tb := h.table
			tb.send = newSendQueue(-1) // nothing reads it
			tb.remember(exit(reused))
			between(tb)
			for pid := range recentExits / 2 {
				tb.remember(exit(reused + 1 + pid))
			}
			tb.remember(exit(reused))
			// This overwrites the first entry of reused in order, and not the second.
			for pid := range recentExits/2 + 1 {
				tb.remember(exit(reused + recentExits + pid))
			}
			if _, ok := tb.recent[reused]; !ok {
				t.Error("the newer exit was dropped with the older one")
			}
			saved := 0
			for b := h.encodeState(); len(b) >= recordSize; b = b[recordSize:] {
				if r := readRecord(b); r.kind == savedRecent && r.num == reused {
					saved++
				}
			}
			if saved != 1 {
				t.Errorf("saved %d times", saved)
			}
			for pid := range recentExits {
				tb.remember(exit(reused + 3*recentExits + pid))
			}
			if _, ok := tb.recent[reused]; ok || len(tb.recent) != recentExits {
				t.Errorf("remembered %v, %d exits", ok, len(tb.recent))
			}
		})
	}
}
