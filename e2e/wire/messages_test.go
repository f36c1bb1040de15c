package wire

import (
	"fmt"
	"time"
)

// message is what the API tells of a WebSocket message or a server-sent event.
type message struct {
	Number     int    `json:"number"`
	Side       string `json:"side"`
	Type       string `json:"type"`
	Size       int64  `json:"size"`
	Compressed bool   `json:"compressed"`
	Broken     bool   `json:"broken"`
	Code       int    `json:"code"`
	Event      string `json:"event"`
	EventID    string `json:"event_id"`
	Preview    string `json:"preview"`
	Pending    bool   `json:"pending"`
	Problem    string `json:"problem"`
}

// messages waits until a session has n messages, none of them being decompressed, and returns them. There must be no more.
func (r *run) messages(id uint64, n int) []message {
	r.Helper()
	const page = 500
	var all []message
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		for len(all) < n {
			var list struct {
				Total    int       `json:"total"`
				Messages []message `json:"messages"`
			}
			r.program.Get(r, fmt.Sprintf("/api/sessions/%d/messages?from=%d&limit=%d", id, len(all), page), &list)
			pending := false
			for _, m := range list.Messages {
				pending = pending || m.Pending
			}
			if len(list.Messages) == 0 || pending {
				break
			}
			all = append(all, list.Messages...)
		}
		if len(all) >= n {
			break
		}
	}
	if len(all) != n {
		r.Fatalf("session %d lists %d messages, want %d: %+v", id, len(all), n, all)
	}
	return all
}
