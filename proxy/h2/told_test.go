package h2

import (
	"testing"

	"golang.org/x/net/http2"
)

// A peer may name settings without end. What is told of them is bounded, and what passes is not touched.
func TestSettingsToldAreBounded(t *testing.T) {
	var many []http2.Setting
	for i := range maxSettings + 5 {
		many = append(many, http2.Setting{ID: http2.SettingID(0x1000 + i), Val: uint32(i)})
	}
	r := greeted(t, nil, many, nil)
	r.client.fr.WriteSettings(http2.Setting{ID: 0x1001, Val: 77}, http2.Setting{ID: 0x2000, Val: 1})
	r.upstream.want("SETTINGS UNKNOWN_SETTING_4097=77 UNKNOWN_SETTING_8192=1")
	r.watch.until(t, "the second SETTINGS", func() bool { return len(r.watch.settings[Client]) == 2 })
	first, second := r.watch.settings[Client][0], r.watch.settings[Client][1]
	if len(first) != maxSettings || len(second) != maxSettings {
		t.Errorf("got %d and %d settings, want %d", len(first), len(second), maxSettings)
	}
	if first[1].Val != 1 || second[1].Val != 77 {
		t.Errorf("got %v, then %v", first[1], second[1])
	}
}
