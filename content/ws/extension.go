package ws

import "strings"

// Agreement is what both sides agreed on about compression: permessage-deflate as the server accepted it. RFC 7692, section 7.
type Agreement struct {
	Deflate     bool
	ClientFresh bool   // client_no_context_takeover: each message of the client's is compressed without the ones before
	ServerFresh bool   // server_no_context_takeover
	Other       string // an extension that is not known here; empty for none
}

// Agreed reads a Sec-WebSocket-Extensions field of the server's answer, whose values are joined by commas. RFC 6455, section 9.1.
// Window sizes need no looking at: who reads with the largest window reads all.
func Agreed(field string) Agreement {
	var a Agreement
	for _, extension := range split(field, ',') {
		params := split(extension, ';')
		if !strings.EqualFold(params[0], "permessage-deflate") {
			if params[0] != "" {
				a.Other = params[0]
			}
			continue
		}
		a.Deflate = true
		for _, param := range params[1:] {
			name, _, _ := strings.Cut(param, "=")
			switch strings.ToLower(strings.TrimSpace(name)) {
			case "client_no_context_takeover":
				a.ClientFresh = true
			case "server_no_context_takeover":
				a.ServerFresh = true
			}
		}
	}
	return a
}

// split splits at a separator that is not in a quoted string, and trims the parts.
func split(text string, at byte) (parts []string) {
	from, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch {
		case quoted && text[i] == '\\':
			i++
		case text[i] == '"':
			quoted = !quoted
		case text[i] == at && !quoted:
			parts = append(parts, strings.TrimSpace(text[from:i]))
			from = i + 1
		}
	}
	return append(parts, strings.TrimSpace(text[min(from, len(text)):]))
}
