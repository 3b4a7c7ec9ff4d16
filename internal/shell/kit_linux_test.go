package shell

import "testing"

// A burst of commands must not leave its descriptors behind.
func TestKitsShrink(t *testing.T) {
	var ks kits
	const burst = 2 * maxKits
	taken := make([]*kit, burst)
	for i := range taken {
		k, err := ks.take()
		if err != nil {
			t.Fatal(err)
		}
		taken[i] = k
	}
	most := 0
	for i, k := range taken {
		if i%10 == 0 {
			ks.drop(k)
		} else {
			ks.put(k)
		}
		most = max(most, len(ks.spare))
		if allowed := burst - i; len(ks.spare) > allowed {
			t.Errorf("%d spare kits, %d in use", len(ks.spare), ks.inUse)
		}
	}
	if most <= 1 || most > maxKits || len(ks.spare) != 1 || ks.inUse != 0 {
		t.Errorf("at most %d spare kits; at the end %d, %d in use", most, len(ks.spare), ks.inUse)
	}
	k, err := ks.take()
	if err != nil {
		t.Fatal(err)
	}
	if err := k.close(); err != nil {
		t.Errorf("the spare kit was closed: %v", err)
	}
}
