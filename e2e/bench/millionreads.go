package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/gorilla/websocket"
)

// reading is one thing that a dashboard asks.
type reading struct {
	what  string
	limit time.Duration // 0: none
	ofCPU bool          // the limit is of the processor time, which is what takes long there
	do    func(ctx context.Context, p *process) (time.Duration, error)
}

func (r reading) target() string {
	switch {
	case r.limit == 0:
		return ""
	case r.ofCPU:
		return "≤ " + msText(r.limit) + " of a processor"
	}
	return "≤ " + msText(r.limit)
}

func (m *million) readings() []reading {
	get := func(query func() string) func(context.Context, *process) (time.Duration, error) {
		return func(ctx context.Context, p *process) (time.Duration, error) {
			took, _, err := m.ask(ctx, p, query())
			return took, err
		}
	}
	fixed := func(query string) func() string { return func() string { return query } }
	middle := func() string { return fmt.Sprint("limit=100&before=", 1+rand.IntN(m.sessions)) }
	const rare = "that matches rarely"
	const page, filter = 100 * time.Millisecond, 500 * time.Millisecond
	return []reading{
		{"list: first page of 100", page, false, get(fixed("limit=100"))},
		{"list: page at a random place", page, false, get(middle)},
		{"live view: until the first window", page, false, m.live("", false)},
		{"live view: until the newest 50 rows and the total", 0, false, m.live("", true)},
		{"live view: window at a random place", page, false, m.liveJump},
		{"live view with a filter " + rare + ": until all is looked at", filter, true, m.live(rareText, true)},
		{"list with a filter by a frequent host", page, false, get(fixed("limit=100&filter=" + url.QueryEscape(hostName(0))))},
		{"list with a filter by a rare host", filter, true, get(fixed("limit=100&filter=" + url.QueryEscape(hostName(hosts-3))))},
		{"list with a filter by a part of the URL " + rare, filter, true, get(fixed("limit=100&filter=" + rareText))},
		{"the same, of letters that are not ASCII", filter, true, get(fixed("limit=100&filter=" + url.QueryEscape("straße")))},
		{"list with a filter by a frequent status", page, false, get(fixed("limit=100&filter=status:404"))},
		{"list with a filter by a status that none has", filter, true, get(fixed("limit=100&filter=status:599"))},
		{"count of a status", filter, true, get(fixed("limit=100&count=true&filter=status:404"))},
		{"count of what a filter matches, a tenth of all", filter, true, get(fixed("limit=100&count=true&filter=" + url.QueryEscape(partText)))},
	}
}

// ask asks the API for sessions.
func (m *million) ask(ctx context.Context, p *process, query string) (time.Duration, []byte, error) {
	began := time.Now()
	text, err := askMillpond(ctx, p, "api/sessions?"+query)
	return time.Since(began), text, err
}

func (m *million) reads(ctx context.Context, dir string) error {
	p, _, err := m.start(ctx, dir, 1)
	if err != nil {
		return err
	}
	defer p.stop()
	if _, _, err := m.ask(ctx, p, "limit=100&filter="+rareText); err != nil { // the file is read ahead
		return err
	}
	for _, r := range m.readings() {
		before := p.cpu()
		took, err := repeat(ctx, p, r, m.repeats)
		if err != nil {
			return err
		}
		cpu := (p.cpu() - before) / time.Duration(m.repeats)
		f := figure{what: r.what, target: r.target(), alone: msText(median(took)), cpu: msText(cpu)}
		switch {
		case r.ofCPU:
			f.met = met(cpu <= r.limit)
		case r.limit > 0:
			f.met = met(median(took) <= r.limit)
		}
		m.add(f)
		fmt.Fprintln(os.Stderr, r.what, f.alone, "processor", f.cpu)
	}
	return m.resident(p, "after all of these", false)
}

func repeat(ctx context.Context, p *process, r reading, times int) (took []time.Duration, err error) {
	for range times {
		one, err := r.do(ctx, p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.what, err)
		}
		took = append(took, one)
	}
	return took, nil
}

// window is what a live view tells.
type window struct {
	Type     string
	Total    uint64
	From     uint64
	Scanning bool
	Rows     []json.RawMessage
}

func (m *million) dialLive(ctx context.Context, p *process) (*websocket.Conn, error) {
	dashboard, _, _ := strings.Cut(p.said["dashboard"], "#")
	ws, res, err := websocket.DefaultDialer.DialContext(ctx, strings.Replace(dashboard, "http", "ws", 1)+"api/live", http.Header{"Authorization": {"Bearer " + token}})
	if err != nil {
		return nil, fmt.Errorf("open the live connection: %w", err)
	}
	_ = res.Body.Close()
	_ = ws.SetReadDeadline(time.Now().Add(taskTime))
	return ws, nil
}

func awaitWindow(ws *websocket.Conn, is func(window) bool) error {
	for {
		var w window
		if err := ws.ReadJSON(&w); err != nil {
			return fmt.Errorf("read the live connection: %w", err)
		}
		if w.Type == "invalid" {
			return errors.New("the view was refused")
		}
		if w.Type == "window" && is(w) {
			return nil
		}
	}
}

// live opens a view of the newest 50 rows, and waits for its first window, or for the one in which all sessions were looked at.
func (m *million) live(filter string, whole bool) func(context.Context, *process) (time.Duration, error) {
	return func(ctx context.Context, p *process) (time.Duration, error) {
		ws, err := m.dialLive(ctx, p)
		if err != nil {
			return 0, err
		}
		defer ws.Close()
		began := time.Now()
		if err := ws.WriteJSON(map[string]any{"type": "view", "id": 1, "filter": filter, "count": 50, "tail": true}); err != nil {
			return 0, err
		}
		err = awaitWindow(ws, func(w window) bool { return !whole || !w.Scanning })
		return time.Since(began), err
	}
}

// liveJump moves the window of a view of everything.
func (m *million) liveJump(ctx context.Context, p *process) (took time.Duration, err error) {
	ws, err := m.dialLive(ctx, p)
	if err != nil {
		return 0, err
	}
	defer ws.Close()
	view := map[string]any{"type": "view", "id": 1, "count": 50, "tail": true}
	if err := ws.WriteJSON(view); err != nil {
		return 0, err
	}
	var total uint64
	if err := awaitWindow(ws, func(w window) bool { total = w.Total; return !w.Scanning }); err != nil {
		return 0, err
	}
	from := rand.Uint64N(max(total, 51) - 50)
	began := time.Now()
	view["from"], view["tail"] = from, false
	if err := ws.WriteJSON(view); err != nil {
		return 0, err
	}
	err = awaitWindow(ws, func(w window) bool { return w.From == from && len(w.Rows) == 50 })
	return time.Since(began), err
}
