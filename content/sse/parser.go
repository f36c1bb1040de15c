// Package sse reads server-sent events out of a response's body, as the WHATWG HTML standard has them, section 9.2. It holds no event: a Parser says where each
// lies, and Parse reads one.
package sse

// Message is what lies between two empty lines of an event stream.
type Message struct {
	Comment bool   // it has no data, so that a browser dispatches no event: comments, or fields alone
	Broken  bool   // the empty line did not come, so that a browser drops it
	Offset  uint64 // of its first byte, from the first byte of the body
	Length  uint64 // with the empty line
	Size    uint64 // of its data, with a line feed between lines
}

// Parser finds the events of a body. It takes bytes in pieces of any size, and holds some 100 bytes whatever they are.
type Parser struct {
	Found func(Message) // called for each once its last byte was written

	at    uint64 // bytes written
	bom   int    // bytes of a byte order mark at the very start
	m     Message
	some  bool // m has a line
	lines int  // of data

	name   [4]byte // the first bytes of the line
	column uint64  // bytes of the line
	isData bool
	colon  bool   // the line's colon came
	value  uint64 // bytes of the line's value
	space  bool   // the next byte is the value's first
	cr     bool   // the byte before was a carriage return, which ended a line
	ended  bool   // a carriage return ended m: a line feed may follow that belongs to it
}

// byteOrderMark is skipped where it begins the body.
const byteOrderMark = "\xef\xbb\xbf"

// Write takes the next bytes. It takes all, and never fails.
func (p *Parser) Write(b []byte) (int, error) {
	for _, c := range b {
		p.take(c)
	}
	return len(b), nil
}

// End says that no more comes. A message that is not whole is found as it is.
func (p *Parser) End() {
	if p.ended {
		p.emit(false)
		return
	}
	if p.column > 0 {
		p.endLine()
	}
	if p.some {
		p.emit(true)
	}
	*p = Parser{Found: p.Found, at: p.at}
}

func (p *Parser) take(c byte) {
	if p.at < 3 && p.bom == int(p.at) && c == byteOrderMark[p.at] {
		p.at++
		p.bom++
		if p.bom == len(byteOrderMark) {
			p.column, p.m.Offset = 0, p.at
		} else {
			p.column++
		}
		return
	}
	if p.ended {
		if c == '\n' {
			p.at++
			p.cr = false
			p.emit(false)
			return
		}
		p.emit(false)
	}
	p.at++
	switch {
	case c == '\n' && p.cr: // of a CRLF
		p.cr = false
		if !p.some {
			p.m.Offset = p.at
		}
	case c == '\n' || c == '\r':
		p.cr = c == '\r'
		p.lineEnd()
	default:
		p.cr = false
		p.inLine(c)
	}
}

// inLine takes a byte of a line.
func (p *Parser) inLine(c byte) {
	switch {
	case p.space:
		p.space = false
		if c != ' ' {
			p.value++
		}
	case p.colon:
		p.value++
	case c == ':':
		p.colon, p.space = true, true
		p.isData = p.column == 4 && p.name == [4]byte{'d', 'a', 't', 'a'}
	case p.column < 4:
		p.name[p.column] = c
	}
	p.column++
}

// lineEnd takes the end of a line. An empty one ends the message.
func (p *Parser) lineEnd() {
	if p.column > 0 {
		p.endLine()
		return
	}
	switch {
	case !p.some: // a further empty line
		p.m.Offset = p.at
	case p.cr:
		p.ended = true
	default:
		p.emit(false)
	}
}

// endLine takes in a line that is not empty.
func (p *Parser) endLine() {
	if !p.colon {
		p.isData = p.column == 4 && p.name == [4]byte{'d', 'a', 't', 'a'}
	}
	if p.isData {
		if p.lines > 0 {
			p.m.Size++
		}
		p.lines++
		p.m.Size += p.value
	}
	p.some = true
	p.column, p.value = 0, 0
	p.isData, p.colon, p.space = false, false, false
}

func (p *Parser) emit(broken bool) {
	m := p.m
	m.Length, m.Broken, m.Comment = p.at-m.Offset, broken, p.lines == 0
	p.m = Message{Offset: p.at}
	p.some, p.ended, p.lines = false, false, 0
	p.Found(m)
}
