package server

// The messages of the live connection, each a JSON object that its type names.

// LiveView opens a view, or replaces the one with this id.
type LiveView struct {
	Type   string `json:"type" enum:"view"`
	ID     int    `json:"id" minimum:"0" doc:"The browser's name for the view."`
	Filter string `json:"filter,omitempty" maxLength:"2000" doc:"A part of the URL, upper and lower case alike; or status:404, status:40, status:4xx, or both. Empty: every session."`
	From   uint64 `json:"from" doc:"Position of the window's first row, counted from the first row that the view ever had."`
	Count  int    `json:"count" minimum:"0" maximum:"500" doc:"Rows in the window; 0 for the total alone."`
	Tail   bool   `json:"tail,omitempty" doc:"The window is the newest count rows, and moves with them; from is not looked at."`
}

// LiveClose ends the view with this id.
type LiveClose struct {
	Type string `json:"type" enum:"close"`
	ID   int    `json:"id"`
}

// LiveWatch asks for changes of one session.
type LiveWatch struct {
	Type string `json:"type" enum:"watch"`
	ID   uint64 `json:"id" doc:"The session's id."`
}

// LiveUnwatch ends LiveWatch.
type LiveUnwatch struct {
	Type string `json:"type" enum:"unwatch"`
	ID   uint64 `json:"id" doc:"The session's id."`
}

// LiveWindow shows the rows of a view's window.
type LiveWindow struct {
	Type     string    `json:"type" enum:"window"`
	ID       int       `json:"id" doc:"The view's."`
	First    uint64    `json:"first" doc:"Position of the oldest row that is still there. It rises as the oldest go."`
	Total    uint64    `json:"total" doc:"Rows that the view has. Their positions are first to first+total-1."`
	From     uint64    `json:"from" doc:"Position of rows[0]: what was asked for, or first where that is later."`
	Rows     []Summary `json:"rows" nullable:"false" doc:"In order of arrival; fewer than asked for at the end."`
	Scanning bool      `json:"scanning,omitempty" doc:"Not every session was looked at yet: total still rises."`
}

// LiveInvalid refuses a message. A view that was there before stays as it was.
type LiveInvalid struct {
	Type    string  `json:"type" enum:"invalid"`
	ID      uint64  `json:"id" doc:"The id of the message that is refused."`
	Problem Problem `json:"problem"`
}

// LiveSession tells that a watched session changed, and once at first.
type LiveSession struct {
	Type    string   `json:"type" enum:"session"`
	ID      uint64   `json:"id"`
	Session *Summary `json:"session,omitempty" doc:"Left out when there is no such session, or it was deleted."`

	Messages uint64 `json:"messages,omitempty" doc:"While the session is open: how many messages are listed so far."`
}

// LiveStatus tells how the store is: at first, and once a second while it changes.
type LiveStatus struct {
	Type              string  `json:"type" enum:"status"`
	Store             Store   `json:"store"`
	BytesPerSecond    float64 `json:"bytes_per_second" doc:"Body bytes forwarded, both ways."`
	SessionsPerSecond float64 `json:"sessions_per_second" doc:"Sessions begun."`

	Deletions []Deletion `json:"deletions,omitempty" nullable:"false" doc:"As in the status."`
}
