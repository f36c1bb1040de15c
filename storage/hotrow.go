package storage

import (
	"encoding/binary"
	"errors"
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
//	 0 state, 1 bits, 2 status (2), 4 flags (3)
//	 7 seven words of 3 bytes: method, scheme, host, upstream, protocol, content type, client without port
//	28 client port (2), 30 request bytes (5), 35 response bytes (5)
//	40 started (8, ns since 1970), 48 duration (6, ns), 54 first byte (6, ns)
//	60 record's segment (4), 64 record's slot (3), 67 first segment (4)
//	71 path: its length as a uvarint, its bytes
//	   texts: each a tag, its length as a uvarint, its bytes
//
// A number that is too large for its field makes the row wide: all that could be are in a text of 52 bytes, whole, and their fields are as they come.
// It takes a body of 1 TiB or a session of 78 hours. migrations holds the rows of former versions.
const hotRowSize = 71

const (
	bitPinned = 1
	bitWide   = 2
)

const wordMask = 1<<24 - 1

// A word's number always fits, and so does a flag's bit.
const (
	_ = uint(wordMask - wordLimit)
	_ = uint(24 - len(rowFlags))
)

// Tags of a row's texts. A word that the dictionary does not hold has the tag textWord and its index.
const (
	textWide  = 1 // the numbers of wideRow
	textError = 2
	textNote  = 3
	textColor = 4
	textFlag  = 5 // one that has no bit
	textWord  = 16
)

// rowFlags gives each flag its bit.
var rowFlags = [...]string{
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

// wideRow holds the numbers of a row that may be too large for their fields: request bytes, response bytes, duration, first byte, record's segment
// and first segment, each 8 bytes, and the record's slot, 4 bytes.
const wideRow = 6*8 + 4

// encodeRow appends the row to b.
func encodeRow(b []byte, r *Row, at rowPlace, dict *dictionary, words *bbolt.Bucket) ([]byte, error) {
	client, port := splitPort(r.Client)
	n := len(b)
	b = append(b, make([]byte, hotRowSize)...)
	b = binary.AppendUvarint(b, uint64(len(r.Path)))
	b = append(b, r.Path...)
	bits, spelled := flagBits(r.Flags)
	numbers := [7]uint32{}
	for i, word := range [7]string{r.Method, r.Scheme, r.Host, r.Upstream, r.Protocol, r.ContentType, client} {
		id, ok, err := dict.id(words, word)
		if err != nil {
			return nil, fmt.Errorf("put word: %w", err)
		}
		if numbers[i] = id; !ok {
			b = appendText(b, byte(textWord+i), word)
		}
	}
	b = appendText(b, textError, r.Error)
	b = appendText(b, textNote, r.Note)
	b = appendText(b, textColor, r.Color)
	for _, flag := range spelled {
		b = appendText(b, textFlag, flag)
	}
	le := binary.LittleEndian
	duration, first := uint64(r.Duration), uint64(r.FirstByte)
	wide := r.RequestBytes>>40|r.ResponseBytes>>40|duration>>48|first>>48|at.record.Segment>>32|uint64(at.record.Slot>>24)|at.first>>32 != 0
	if wide {
		b = append(b, textWide, wideRow)
		for _, v := range [6]uint64{r.RequestBytes, r.ResponseBytes, duration, first, at.record.Segment, at.first} {
			b = le.AppendUint64(b, v)
		}
		b = le.AppendUint32(b, at.record.Slot)
	}

	// Numbers of odd widths are written whole, and the next field over what is too much. From the first on.
	h := b[n : n+hotRowSize]
	h[0] = byte(r.State)
	if r.Pinned {
		h[1] |= bitPinned
	}
	if wide {
		h[1] |= bitWide
	}
	le.PutUint16(h[2:], uint16(min(max(r.Status, 0), 1<<16-1)))
	le.PutUint32(h[4:], bits)
	for i, number := range numbers {
		le.PutUint32(h[7+3*i:], number)
	}
	le.PutUint16(h[28:], port)
	le.PutUint64(h[30:], r.RequestBytes)
	le.PutUint64(h[35:], r.ResponseBytes)
	started := uint64(0)
	if !r.Started.IsZero() {
		started = uint64(r.Started.UnixNano())
	}
	le.PutUint64(h[40:], started)
	le.PutUint64(h[48:], duration)
	le.PutUint64(h[54:], first)
	le.PutUint32(h[60:], uint32(at.record.Segment))
	le.PutUint32(h[64:], at.record.Slot)
	le.PutUint32(h[67:], uint32(at.first))
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
	if h[1]&bitWide == 0 {
		return rowPlace{slotID{uint64(le.Uint32(h[60:])), le.Uint32(h[64:]) & wordMask}, uint64(le.Uint32(h[67:]))}, State(h[0]), nil
	}
	_, texts, ok := pathOf(h)
	for ok && len(texts) > 0 {
		var tag byte
		var text []byte
		if tag, text, texts, ok = nextText(texts); ok && tag == textWide && len(text) == wideRow {
			return rowPlace{slotID{le.Uint64(text[32:]), le.Uint32(text[48:])}, le.Uint64(text[40:])}, State(h[0]), nil
		}
	}
	return p, 0, errors.New("decode row: it lacks its wide numbers")
}

// pathOf returns the path of a row that has its fixed part whole, and the texts that follow.
func pathOf(h []byte) (path, texts []byte, ok bool) {
	t := h[hotRowSize:]
	if len(t) > 0 && t[0] < 0x80 && int(t[0]) < len(t) { // most paths
		return t[1 : 1+t[0]], t[1+t[0]:], true
	}
	length, n := binary.Uvarint(t)
	if n <= 0 || length > uint64(len(t)-n) {
		return nil, nil, false
	}
	return t[n : n+int(length)], t[n+int(length):], true
}

// nextText returns the first of a row's texts, of which there is one, and what follows.
func nextText(t []byte) (tag byte, text, rest []byte, ok bool) {
	length, n := binary.Uvarint(t[1:])
	if n <= 0 || length > uint64(len(t)-1-n) {
		return 0, nil, nil, false
	}
	return t[0], t[1+n : 1+n+int(length)], t[1+n+int(length):], true
}

// validRow reports whether decodeRow would take the row.
func validRow(h []byte) bool {
	if len(h) < hotRowSize {
		return false
	}
	_, texts, ok := pathOf(h)
	for ok && len(texts) > 0 {
		_, _, texts, ok = nextText(texts)
	}
	return ok
}

// decodeRow fills r from the stored row. Nothing of r points into h.
func decodeRow(r *Row, id uint64, h []byte, dict words) error {
	if len(h) < hotRowSize {
		return fmt.Errorf("decode row %d: %d bytes", id, len(h))
	}
	path, texts, ok := pathOf(h)
	if !ok {
		return fmt.Errorf("decode row %d: path longer than the row", id)
	}
	le := binary.LittleEndian
	f := (*[hotRowSize]byte)(h)
	*r = Row{
		ID: id, State: State(f[0]), Pinned: f[1]&bitPinned != 0, Status: int(le.Uint16(f[2:])),
		RequestBytes: le.Uint64(f[30:]) & (1<<40 - 1), ResponseBytes: le.Uint64(f[35:]) & (1<<40 - 1),
		Duration: time.Duration(le.Uint64(f[48:]) & (1<<48 - 1)), FirstByte: time.Duration(le.Uint64(f[54:]) & (1<<48 - 1)),
	}
	r.Path = string(path)
	r.Method, r.Scheme = dict.word(le.Uint32(f[7:])), dict.word(le.Uint32(f[10:]))
	r.Host, r.Upstream = dict.word(le.Uint32(f[13:])), dict.word(le.Uint32(f[16:]))
	r.Protocol, r.ContentType = dict.word(le.Uint32(f[19:])), dict.word(le.Uint32(f[22:]))
	r.Durable = r.State != Open
	if ns := int64(le.Uint64(f[40:])); ns != 0 {
		r.Started = time.Unix(0, ns).UTC()
	}
	for i, bits := 0, le.Uint32(f[4:])&wordMask; bits != 0 && i < len(rowFlags); i, bits = i+1, bits>>1 {
		switch {
		case bits == 1 && r.Flags == nil:
			r.Flags = rowFlags[i : i+1 : i+1] // one flag is the most that most rows have
		case bits&1 != 0:
			r.Flags = append(r.Flags, rowFlags[i])
		}
	}
	client := dict.word(le.Uint32(f[25:]))
	for len(texts) > 0 {
		var tag byte
		var text []byte
		if tag, text, texts, ok = nextText(texts); !ok {
			return fmt.Errorf("decode row %d: text longer than the row", id)
		}
		if tag == textWide && len(text) == wideRow {
			r.RequestBytes, r.ResponseBytes = le.Uint64(text), le.Uint64(text[8:])
			r.Duration, r.FirstByte = time.Duration(le.Uint64(text[16:])), time.Duration(le.Uint64(text[24:]))
		} else if tag == textWord+6 {
			client = string(text)
		} else {
			r.spell(tag, string(text))
		}
	}
	if r.Client = client; client != "" {
		if port := le.Uint16(f[28:]); port != 0 {
			r.Client = joinPort(client, port)
		}
	}
	return nil
}

// spell puts a text where it belongs.
func (r *Row) spell(tag byte, text string) {
	switch tag {
	case textError:
		r.Error = text
	case textNote:
		r.Note = text
	case textColor:
		r.Color = text
	case textFlag:
		r.Flags = append(r.Flags, text)
	case textWord:
		r.Method = text
	case textWord + 1:
		r.Scheme = text
	case textWord + 2:
		r.Host = text
	case textWord + 3:
		r.Upstream = text
	case textWord + 4:
		r.Protocol = text
	case textWord + 5:
		r.ContentType = text
	}
}

// statusOf returns the status in a row that urlOf decodes.
func statusOf(h []byte) int { return int(binary.LittleEndian.Uint16(h[2:])) }

// urlOf reads only the URL of the row. path points into h.
func urlOf(id uint64, h []byte, dict words) (scheme, host string, path []byte, err error) {
	if len(h) < hotRowSize {
		return "", "", nil, fmt.Errorf("decode row %d: %d bytes", id, len(h))
	}
	path, texts, ok := pathOf(h)
	if !ok {
		return "", "", nil, fmt.Errorf("decode row %d: path longer than the row", id)
	}
	le := binary.LittleEndian
	scheme, host = dict.word(le.Uint32(h[10:])), dict.word(le.Uint32(h[13:]))
	for len(texts) > 0 && (scheme == "" || host == "") { // one of them may be spelled out
		var tag byte
		var text []byte
		if tag, text, texts, ok = nextText(texts); !ok {
			return "", "", nil, fmt.Errorf("decode row %d: text longer than the row", id)
		}
		switch tag {
		case textWord + 1:
			scheme = string(text)
		case textWord + 2:
			host = string(text)
		}
	}
	return scheme, host, path, nil
}
