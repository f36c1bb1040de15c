package server

import (
	"encoding/hex"
	"strings"
	"time"

	"golang.org/x/net/idna"

	"millpond/storage"
)

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// latin1 turns wire bytes into text, one character a byte.
func latin1(b []byte) string {
	runes := make([]rune, len(b))
	for i, c := range b {
		runes[i] = rune(c)
	}
	return string(runes)
}

func summaryOf(r *storage.Row) Summary {
	return Summary{
		ID: r.ID, State: r.State.String(), Durable: r.Durable,
		Method: r.Method, Scheme: r.Scheme, Host: r.Host, Upstream: r.Upstream, Path: r.Path, Protocol: r.Protocol,
		Status: r.Status, ContentType: r.ContentType, RequestBytes: r.RequestBytes, ResponseBytes: r.ResponseBytes,
		Started: r.Started, Duration: milliseconds(r.Duration), FirstByte: milliseconds(r.FirstByte),
		Client: r.Client, Error: r.Error, Flags: append([]string{}, r.Flags...),
		Pinned: r.Pinned, Note: r.Note, Color: r.Color,
	}
}

func sessionOf(r *storage.Row, s *storage.Session) Session {
	made := s.Timing.Connection()
	out := Session{
		Summary:  summaryOf(r),
		Request:  messageOf(&s.Sides[storage.Request]),
		Response: messageOf(&s.Sides[storage.Response]),
		Timing: Timing{
			Started:      s.Timing.Started,
			Connect:      moment(made.Connect),
			Connected:    moment(made.Connected),
			Secured:      moment(made.Secured),
			RequestSent:  moment(s.Timing.RequestSent),
			ResponseHead: moment(s.Timing.ResponseHead),
			Ended:        moment(s.Timing.Ended),

			Resolved:      moment(made.Resolved),
			ClientHello:   moment(made.ClientHello),
			ClientSecured: moment(made.ClientSecured),
			FirstByte:     moment(s.Timing.FirstByte),
		},
	}
	out.Unicode = unicodeHost(r.Host)
	out.Messages, out.GRPC = messagesOf(s.Messages), grpcOf(s)
	if t := s.TLS; t != nil {
		out.TLS = &TLS{
			ServerName: t.ServerName, ALPN: t.ALPN, JA4: t.JA4,
			ClientVersion: t.ClientVersion, ClientCipher: t.ClientCipher,
			UpstreamVersion: t.UpstreamVersion, UpstreamCipher: t.UpstreamCipher, UpstreamError: t.UpstreamError,
			Certificates: s.Certificates != nil || t.Chain != nil,
		}
	}
	if s.HTTP2 != nil {
		out.HTTP2 = http2Of(s.HTTP2)
	}
	return out
}

// unicodeHost returns a host, which may have a port, with its labels in Unicode, or nothing where that is no different (RFC 5891, section 4.4).
func unicodeHost(host string) string {
	name, port, found := strings.Cut(host, ":") // an address in brackets has no label that is coded
	if !strings.Contains(strings.ToLower(name), "xn--") {
		return ""
	}
	written, err := idna.Display.ToUnicode(name)
	if err != nil || written == name {
		return ""
	}
	if found {
		written += ":" + port
	}
	return written
}

func messageOf(m *storage.Message) Message {
	out := Message{
		Head:     latin1(m.Head),
		Fields:   fieldsOf(m.Head),
		Received: latin1(m.Received),
		Trailers: trailersOf(m.Trailers),
		Body: Body{
			Size: m.Body.Size, Passed: m.Body.Passed, Complete: m.Body.Complete,
			SHA256: hex.EncodeToString(m.Body.SHA256), Missing: m.Body.Missing,
			Coding: codingOf(m.Head),
		},
		Framing: m.Framing.String(),
	}
	if m.Chunks != nil {
		out.ChunkExtensionsCut = m.Chunks.Cut
		for _, e := range m.Chunks.Extensions {
			out.ChunkExtensions = append(out.ChunkExtensions, ChunkExtension{e.Offset, e.Size, latin1(e.Text)})
		}
	}
	for _, head := range m.Informational {
		out.Informational = append(out.Informational, latin1(head))
	}
	return out
}

// moment returns nil for the zero time.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
