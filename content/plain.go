package content

import (
	"bufio"
	"bytes"
	"io"
	"unicode/utf8"
)

// textProof is how many bytes of text in a row prove that a body is not compressed. Of compressed bytes fewer than
// half could be text; 32 of them are so in one body of ten thousand million.
const textProof = 32

// isPlain reports whether the body is text that its label calls compressed, for codings that have no mark to tell by. It reads on only as long as the
// bytes are text. A body that is shorter than the proof is plain if decoding it does not end just where it ends.
func isPlain(in *bufio.Reader, decode func(*bufio.Reader) io.Reader) bool {
	for at := 0; at < textProof; {
		head, err := in.Peek(at + 1)
		for err == nil && !utf8.FullRune(head[at:]) {
			head, err = in.Peek(len(head) + 1)
		}
		if err != nil {
			return err == io.EOF && len(head) == at && !decodes(head, decode)
		}
		r, size := utf8.DecodeRune(head[at:])
		if r == utf8.RuneError && size == 1 || isControl(r) {
			return false
		}
		at += size
	}
	return true
}

func decodes(body []byte, decode func(*bufio.Reader) io.Reader) bool {
	in := bufio.NewReader(bytes.NewReader(body))
	if _, err := io.Copy(io.Discard, io.LimitReader(decode(in), LimitFloor)); err != nil {
		return false
	}
	_, err := in.Peek(1)
	return err == io.EOF
}

// isControl reports whether text does not have the character.
func isControl(r rune) bool {
	return r < ' ' && r != '\t' && r != '\n' && r != '\r' && r != '\f' && r != 0x1b || r == 0x7f
}
