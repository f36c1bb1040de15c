package harness

import (
	"net/http"

	"github.com/gorilla/websocket"
)

// serveSocket sends back each message that comes, compressed where the client can read that.
func serveSocket(w http.ResponseWriter, r *http.Request) {
	upgrader := websocket.Upgrader{EnableCompression: true, CheckOrigin: func(*http.Request) bool { return true }}
	c, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // Upgrade answered
	}
	defer c.Close()
	for {
		kind, message, err := c.ReadMessage()
		if err != nil || c.WriteMessage(kind, message) != nil {
			return
		}
	}
}
