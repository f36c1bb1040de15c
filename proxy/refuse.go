package proxy

import (
	"net/http"
	"strconv"
)

// ownAnswer renders what the proxy itself says to a client, as an HTTP/1 message that ends its connection. text says what happened and what to do.
func ownAnswer(status int, text string) (h *head, body []byte) {
	body = []byte("Millpond: " + text + "\n")
	h = &head{proto: "HTTP/1.1", eol: "\r\n", status: status}
	return h.with("HTTP/1.1 "+strconv.Itoa(status)+" "+http.StatusText(status), []field{
		{name: "Content-Type", value: "text/plain; charset=utf-8"},
		{name: "X-Content-Type-Options", value: "nosniff"},
		{name: "Content-Length", value: strconv.Itoa(len(body))},
		{name: "Connection", value: "close"},
	}), body
}
