package sse

import "strings"

// Event is a message, read.
type Event struct {
	Type    string // the event field; empty for "message"
	ID      string
	Retry   string // milliseconds, as sent
	Data    string // its lines joined by a line feed
	Comment string // lines that begin with a colon, joined in the same way
}

// Parse reads a message, or the beginning of one.
func Parse(message string) (e Event) {
	data, comments := 0, 0
	for message != "" {
		var line string
		if i := strings.IndexAny(message, "\r\n"); i < 0 {
			line, message = message, ""
		} else {
			line = message[:i]
			if strings.HasPrefix(message[i:], "\r\n") {
				i++
			}
			message = message[i+1:]
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case name == "data":
			e.Data = join(e.Data, value, data)
			data++
		case name == "event":
			e.Type = value
		case name == "id" && !strings.Contains(value, "\x00"):
			e.ID = value
		case name == "retry":
			e.Retry = value
		case strings.HasPrefix(line, ":"):
			e.Comment = join(e.Comment, value, comments)
			comments++
		}
	}
	return e
}

func join(text, line string, n int) string {
	if n == 0 {
		return line
	}
	return text + "\n" + line
}
