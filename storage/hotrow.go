package storage

import (
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/bbolt"
)

// A hot row is what the index keeps of a session. What changes while a session goes on are numbers of fixed width, so that a row is
// put once at its final length and then written over in place: rows that grow would split their pages. Little-endian:
//
//	 0 state, 1 bits, 2 status, 4 flags
//	 8 seven words: method, scheme, host, upstream, protocol, content type, client without port
//	36 client port, 38 request bytes, 46 response bytes
//	54 started (ns since 1970), 62 duration (ns), 70 first byte (ns)
//	78 record's segment, 86 record's slot, 90 first segment
//	98 texts: each a tag, its length as a uvarint, its bytes
const hotRowSize = 98

const bitPinned = 1

// Tags of a row's texts. A word that the dictionary does not hold has the tag textWord and its index.
const (
	textPath  = 1
	textError = 2
	textNote  = 3
	textColor = 4
	textFlag  = 5 // one that has no bit
	textWord  = 16
)

// rowFlags gives each flag its bit.
var rowFlags = []string{
	FlagHostDiffers, FlagAmbiguousFraming, FlagModified, FlagMoved, FlagAnswered,
	FlagInsecure, FlagTunnel, FlagUpgraded, FlagCut, FlagReused, FlagReverse, FlagOddName,
	FlagPassthrough, FlagUpstreamProxy, FlagWebSocket,
}

// rowPlace is where a row's full record is, and the first segment that speaks of the session.
type rowPlace struct {
	record slotID
	first  uint64
}

// rowOf makes the row of a session as far as the session tells.
func rowOf(s *Session, now time.Time) Row {
	r := Row{
		ID: s.ID, State: s.State, Method: s.Method, Scheme: s.Scheme, Host: s.Host, Upstream: s.Upstream, Path: s.Path,
		Protocol: s.Protocol, Status: s.Status, ContentType: s.ContentType,
		RequestBytes: s.Sides[Request].Body.Passed, ResponseBytes: s.Sides[Response].Body.Passed,
		Started: s.Timing.Started, Client: s.Client, Error: s.Error, Flags: s.Flags, Pinned: s.Pinned, Note: s.Note, Color: s.Color,
	}
	if s.State == Open {
		r.Duration = span(s.Timing.Started, now)
	} else {
		r.Duration = span(s.Timing.Started, s.Timing.Ended)
	}
	if s.Messages != nil && s.Messages.Kind == WebSocket && !s.HasFlag(FlagWebSocket) {
		r.Flags = append(slices.Clip(s.Flags), FlagWebSocket)
	}
	r.FirstByte = span(s.Timing.Started, s.Timing.ResponseHead)
	return r
}

// span is the time between two moments by the wall clock, as it can be told from the stored record, and 0 where the second did not come.
func span(from, to time.Time) time.Duration {
	if to.IsZero() {
		return 0
	}
	return max(to.Round(0).Sub(from.Round(0)), 0)
}

// encodeRow appends the row to b.
func encodeRow(b []byte, r *Row, at rowPlace, dict *dictionary, words *bbolt.Bucket) ([]byte, error) {
	client, port := splitPort(r.Client)
	n := len(b)
	b = append(b, make([]byte, hotRowSize)...)
	h := b[n:]
	h[0] = byte(r.State)
	if r.Pinned {
		h[1] |= bitPinned
	}
	le := binary.LittleEndian
	le.PutUint16(h[2:], uint16(r.Status))
	bits, spelled := flagBits(r.Flags)
	le.PutUint32(h[4:], bits)
	for i, word := range [7]string{r.Method, r.Scheme, r.Host, r.Upstream, r.Protocol, r.ContentType, client} {
		id, ok, err := dict.id(words, word)
		if err != nil {
			return nil, fmt.Errorf("put word: %w", err)
		}
		if !ok {
			b = appendText(b, byte(textWord+i), word)
			h = b[n:]
		}
		le.PutUint32(h[8+4*i:], id)
	}
	le.PutUint16(h[36:], port)
	le.PutUint64(h[38:], r.RequestBytes)
	le.PutUint64(h[46:], r.ResponseBytes)
	if !r.Started.IsZero() {
		le.PutUint64(h[54:], uint64(r.Started.UnixNano()))
	}
	le.PutUint64(h[62:], uint64(r.Duration))
	le.PutUint64(h[70:], uint64(r.FirstByte))
	le.PutUint64(h[78:], at.record.Segment)
	le.PutUint32(h[86:], at.record.Slot)
	le.PutUint64(h[90:], at.first)
	b = appendText(b, textPath, r.Path)
	b = appendText(b, textError, r.Error)
	b = appendText(b, textNote, r.Note)
	b = appendText(b, textColor, r.Color)
	for _, flag := range spelled {
		b = appendText(b, textFlag, flag)
	}
	return b, nil
}

func appendText(b []byte, tag byte, text string) []byte {
	if text == "" {
		return b
	}
	b = append(b, tag)
	b = binary.AppendUvarint(b, uint64(len(text)))
	return append(b, text...)
}

func flagBits(flags []string) (bits uint32, spelled []string) {
next:
	for _, flag := range flags {
		for i, known := range rowFlags {
			if flag == known {
				bits |= 1 << i
				continue next
			}
		}
		spelled = append(spelled, flag)
	}
	return bits, spelled
}

func splitPort(addr string) (host string, port uint16) {
	h, p, err := net.SplitHostPort(addr)
	if err != nil {
		return addr, 0
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil || n == 0 || net.JoinHostPort(h, strconv.FormatUint(n, 10)) != addr {
		return addr, 0
	}
	return h, uint16(n)
}

// joinPort is net.JoinHostPort in one allocation.
func joinPort(host string, port uint16) string {
	var room [64]byte
	b := room[:0]
	if strings.IndexByte(host, ':') >= 0 {
		b = append(append(append(b, '['), host...), ']')
	} else {
		b = append(b, host...)
	}
	return string(strconv.AppendUint(append(b, ':'), uint64(port), 10))
}

// rowPlaceOf reads only where the row's record is.
func rowPlaceOf(h []byte) (p rowPlace, state State, err error) {
	if len(h) < hotRowSize {
		return p, 0, fmt.Errorf("decode row: %d bytes", len(h))
	}
	le := binary.LittleEndian
	return rowPlace{slotID{le.Uint64(h[78:]), le.Uint32(h[86:])}, le.Uint64(h[90:])}, State(h[0]), nil
}

// validRow reports whether decodeRow would take the row.
func validRow(h []byte) bool {
	if len(h) < hotRowSize {
		return false
	}
	for t := h[hotRowSize:]; len(t) > 0; {
		length, n := binary.Uvarint(t[1:])
		if n <= 0 || length > uint64(len(t)-1-n) {
			return false
		}
		t = t[1+n+int(length):]
	}
	return true
}

// decodeRow fills r from the stored row. Nothing of r points into h.
func decodeRow(r *Row, id uint64, h []byte, dict words) error {
	if len(h) < hotRowSize {
		return fmt.Errorf("decode row %d: %d bytes", id, len(h))
	}
	le := binary.LittleEndian
	*r = Row{
		ID: id, State: State(h[0]), Pinned: h[1]&bitPinned != 0, Status: int(le.Uint16(h[2:])),
		RequestBytes: le.Uint64(h[38:]), ResponseBytes: le.Uint64(h[46:]),
		Duration: time.Duration(le.Uint64(h[62:])), FirstByte: time.Duration(le.Uint64(h[70:])),
	}
	r.Durable = r.State != Open
	if ns := int64(le.Uint64(h[54:])); ns != 0 {
		r.Started = time.Unix(0, ns).UTC()
	}
	for i, bits := 0, le.Uint32(h[4:]); bits != 0 && i < len(rowFlags); i, bits = i+1, bits>>1 {
		switch {
		case bits == 1 && r.Flags == nil:
			r.Flags = rowFlags[i : i+1 : i+1] // one flag is the most that most rows have
		case bits&1 != 0:
			r.Flags = append(r.Flags, rowFlags[i])
		}
	}
	var client string
	words := [7]*string{&r.Method, &r.Scheme, &r.Host, &r.Upstream, &r.Protocol, &r.ContentType, &client}
	for i, word := range words {
		*word = dict.word(le.Uint32(h[8+4*i:]))
	}
	for t := h[hotRowSize:]; len(t) > 0; {
		tag := t[0]
		length, n := binary.Uvarint(t[1:])
		if n <= 0 || length > uint64(len(t)-1-n) {
			return fmt.Errorf("decode row %d: text longer than the row", id)
		}
		text := string(t[1+n : 1+n+int(length)])
		t = t[1+n+int(length):]
		switch {
		case tag == textPath:
			r.Path = text
		case tag == textError:
			r.Error = text
		case tag == textNote:
			r.Note = text
		case tag == textColor:
			r.Color = text
		case tag == textFlag:
			r.Flags = append(r.Flags, text)
		case tag >= textWord && tag < textWord+7:
			*words[tag-textWord] = text
		}
	}
	if r.Client = client; client != "" {
		if port := le.Uint16(h[36:]); port != 0 {
			r.Client = joinPort(client, port)
		}
	}
	return nil
}

// urlOf reads only the URL of the row. path points into h.
func urlOf(id uint64, h []byte, dict words) (scheme, host string, path []byte, err error) {
	if len(h) < hotRowSize {
		return "", "", nil, fmt.Errorf("decode row %d: %d bytes", id, len(h))
	}
	le := binary.LittleEndian
	scheme, host = dict.word(le.Uint32(h[12:])), dict.word(le.Uint32(h[16:]))
	for t := h[hotRowSize:]; len(t) > 0; {
		length, n := binary.Uvarint(t[1:])
		if n <= 0 || length > uint64(len(t)-1-n) {
			return "", "", nil, fmt.Errorf("decode row %d: text longer than the row", id)
		}
		text := t[1+n : 1+n+int(length)]
		switch t[0] {
		case textPath:
			path = text
		case textWord + 1:
			scheme = string(text)
		case textWord + 2:
			host = string(text)
		}
		t = t[1+n+int(length):]
	}
	return scheme, host, path, nil
}
