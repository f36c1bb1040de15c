package server

import "time"

// The JSON shapes of the API about messages.

// Messages tells of a session's messages.
type Messages struct {
	Kind       string   `json:"kind" enum:"websocket,events"`
	Count      uint64   `json:"count" doc:"How many are listed so far."`
	Compressed bool     `json:"compressed,omitempty" doc:"permessage-deflate was agreed."`
	Lost       []string `json:"lost,omitempty" nullable:"false" doc:"Where and why the list does not go on to a body's end, for people. The bytes themselves are in the body."`
}

// GRPC is the status of a gRPC call.
type GRPC struct {
	Status  int    `json:"status" doc:"grpc-status; 0 is OK."`
	Name    string `json:"name" doc:"UNAVAILABLE, …"`
	Message string `json:"message,omitempty" doc:"grpc-message, unescaped."`
}

// MessageList is one page of a session's messages.
type MessageList struct {
	Total    uint64          `json:"total" doc:"How many are listed so far."`
	Final    bool            `json:"final" doc:"None will be added."`
	Messages []StreamMessage `json:"messages" nullable:"false"`
}

// StreamMessage is a WebSocket message or control frame, or a server-sent event.
type StreamMessage struct {
	Number     uint64    `json:"number"`
	Side       string    `json:"side" enum:"request,response"`
	Time       time.Time `json:"time" doc:"Its last byte passed."`
	Type       string    `json:"type" enum:"text,binary,close,ping,pong,event,comment"`
	Size       uint64    `json:"size" doc:"Of the payload as it passed; of an event, its data."`
	Offset     uint64    `json:"offset" doc:"Of its first byte in the side's body."`
	Length     uint64    `json:"length" doc:"From there to its last byte, heads of frames included."`
	Compressed bool      `json:"compressed,omitempty"`
	Decoded    *int64    `json:"decoded_size,omitempty" doc:"Of the payload, decompressed."`
	Broken     bool      `json:"broken,omitempty" doc:"Its end did not come."`
	Code       int       `json:"code,omitempty" doc:"Of a close."`
	Event      string    `json:"event,omitempty" doc:"An event's type; left out for message."`
	EventID    string    `json:"event_id,omitempty"`
	Retry      string    `json:"retry,omitempty"`
	Preview    string    `json:"preview" doc:"The beginning in one line; in hexadecimal where it is no text."`
	Pending    bool      `json:"pending,omitempty" doc:"It is still being decompressed: ask again in a moment."`
	Problem    string    `json:"problem,omitempty" doc:"Why the payload is not shown decoded, for people."`
}
