package main

import (
	"testing"
	"time"

	"millpond/e2e/harness"
)

// The program is killed, its disk's power is cut, and its disk fails: what it acknowledged stands. npm run torture does more of all that.
func TestTorture(t *testing.T) {
	binary, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"power", "full", "fault", "kill"} {
		t.Run(part, func(t *testing.T) {
			p := plan{
				binary: binary, dir: t.TempDir(), seed: uint64(time.Now().UnixNano()), kills: 20, power: 5, faults: 1, short: true, only: part,
				most: 10 * time.Minute, slack: time.Second, log: t.Logf,
			}
			t.Logf("seed %d", p.seed)
			r, err := p.run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range r.violations {
				t.Error(v)
			}
			for _, why := range r.notRun {
				t.Log("NOT RUN: ", why)
			}
			if len(r.violations) > 0 {
				return
			}
			if r.took == 0 || r.all() == 0 {
				t.Skip("NOT RUN: nothing of this can be done here")
			}
			if r.sessions.Load() == 0 || r.durables.Load() == 0 {
				t.Errorf("nothing was acknowledged, and so nothing of that is shown: %s", r.line())
			}
			if kills, cuts := r.allKills(), r.powerCuts.Load(); part == "kill" && kills < 20 || part == "power" && cuts < 5 {
				t.Errorf("%d kills, %d power cuts", kills, cuts)
			}
			t.Log(r.line())
		})
	}
}
