package proxy

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// Parts of which messages are put together: what is common, what is legal and rare, and what parsers are known to disagree on.
var (
	someMethods  = []string{"GET", "GET", "POST", "POST", "HEAD", "PUT", "CONNECT", "OPTIONS", "get", "G=T", "M-SEARCH"}
	someTargets  = []string{"/", "/a?b", "http://a.test/", "http://a.test:80?x", "*", "a.test:443", "/%zz", "/\xe6\xb5\x8b", "http://[::1]:8/", "/a b", "//x", "http://u:p@a/"}
	someVersions = []string{"HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/1.2", "HTTP/2.0", "http/1.1", "HTTP/1.1 ", "HTTP/01.1"}
	someStatuses = []string{"200 OK", "200 OK", "200", "204 No Content", "304 Not Modified", "100 Continue", "101 x", "404 Not \xe9", " 200 OK", "99 x", "2000 x", "+20 x"}
	someFields   = []string{
		"Host: a.test", "host:b", "Accept: */*", "Cookie: a=b; c", "X:", "X: \t", "X: a\x01b", "X: caf\xe9", "Pragma: no-cache", "X : y", "a=b; c: d", ": x", "nocolon",
		"X: a\r\n b", "X:\r\n\t\r\n c", " lead: x", "Content-Length : 3", "Content-Length:\r\n 3", "X: a\rb", "X: a\x00b", "Trailer: X-T", "Trailer: Content-Length",
		"Connection: close", "Connection: keep-alive", "Expect: 100-continue", "Upgrade: x", "Proxy-Connection: x", "Proxy-Authorization: Basic eA==",
		"Content_Length: 3", "Content-Length\x0b: 3", "Transfer-Encoding\t: chunked", "\x0bTransfer-Encoding: chunked",
	}
	someFraming = []string{
		"Content-Length: %d", "content-length:%d", "Content-Length: 0%d", "Content-Length: +%d", "Content-Length: %d, %[1]d", "Content-Length: %d\r\nContent-Length: %[1]d",
		"Content-Length: %d\r\nContent-Length: 9", "Content-Length: -%d", "Content-Length: 0x%d", "Content-Length: %d ", "Content-Length: 99999999999999999999%d", "Content-Length:",
		"Transfer-Encoding: chunked", "transfer-encoding:\tCHUNKED ", "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: chunked, chunked", "Transfer-Encoding: chunked, gzip",
		"Transfer-Encoding: identity", "Transfer-Encoding: xchunked", "Transfer-Encoding: chunked\x0b", "Transfer-Encoding: \"chunked\"", "Transfer-Encoding: chunked;q=1", "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
		"Transfer-Encoding: chunked\r\nContent-Length: %d", "Transfer-Encoding:", "Transfer-Encoding: ,chunked", "Transfer-Encoding: chunked,",
	}
	someChunks = []string{
		"3\r\nabc\r\n", "1\r\nx\r\n", "A\r\n0123456789\r\n", "a;x=y\r\n0123456789\r\n", "3 \r\nabc\r\n", "3;\r\nabc\r\n", "03\r\nabc\r\n", "00000000000000003\r\nabc\r\n", "3\nabc\n", "3;a\nabc\r\n",
		"3\r\nabcd\r\n", "4\r\nabc\r\n", "-1\r\n", "0x3\r\nabc\r\n", "3 x\r\nabc\r\n", "3\rabc\r\n", "ffffffffffffffff\r\n", "8000000000000000\r\n", "7fffffffffffffff\r\n", "\r\n", "3;a\x00b\r\nabc\r\n", "3;a\rb\r\nabc\r\n",
	}
	someTrailers = []string{"", "", "", "X-T: 1\r\n", "X-T: 1\r\nX-U: 2\r\n", "bad\r\n", " x\r\n", "X: a\r\n b\r\n", "X-T: 1\n", "Content-Length: 9\r\n", "X:a\x01\r\n"}
	someEnds     = []string{"\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\n", "\r\n\r\n", "\r"}
)

func pick(r *rand.Rand, from []string) string { return from[r.IntN(len(from))] }

// someMessage is a message put together by chance, well-formed in most of its parts.
func someMessage(r *rand.Rand, response bool) string {
	eol := func() string {
		if r.IntN(30) == 0 {
			return pick(r, someEnds)
		}
		return "\r\n"
	}
	var b strings.Builder
	if r.IntN(20) == 0 {
		b.WriteString(eol())
	}
	usual := func(from []string) string { // the first are the usual ones
		if r.IntN(3) > 0 {
			return pick(r, from[:4])
		}
		return pick(r, from)
	}
	if response {
		b.WriteString(pick(r, someVersions[:4]) + " " + usual(someStatuses) + eol())
	} else {
		b.WriteString(usual(someMethods) + " " + usual(someTargets) + " " + usual(someVersions) + eol())
	}
	for range r.IntN(4) {
		b.WriteString(usual(someFields) + eol())
	}
	framed := usual(someFraming)
	if r.IntN(3) == 0 {
		framed = "Transfer-Encoding: chunked"
	}
	var body strings.Builder
	if strings.Contains(framed, "%d") {
		n := r.IntN(12)
		framed = strings.Split(fmt.Sprintf(framed, n), "%!")[0]
		body.WriteString(strings.Repeat("b", n))
	}
	if strings.Contains(strings.ToLower(framed), "transfer") {
		for range r.IntN(3) {
			body.WriteString(usual(someChunks))
		}
		if r.IntN(8) > 0 {
			body.WriteString("0\r\n" + pick(r, someTrailers) + "\r\n")
		}
	}
	if r.IntN(4) > 0 {
		b.WriteString(framed + eol())
	}
	for range r.IntN(2) {
		b.WriteString(usual(someFields) + eol())
	}
	return b.String() + "\r\n" + body.String()
}

// mutated changes a few bytes.
func mutated(r *rand.Rand, s string) string {
	for range r.IntN(4) {
		if len(s) == 0 {
			return s
		}
		at, b := r.IntN(len(s)), string("\r\n\t :,;\x00\x0b0aA\xff"[r.IntN(13)])
		switch r.IntN(4) {
		case 0:
			s = s[:at] + s[at+1:]
		case 1:
			s = s[:at] + b + s[at:]
		case 2:
			s = s[:at] + b + s[at+1:]
		default:
			to := at + r.IntN(len(s)-at)
			s = s[:to] + s[at:to] + s[to:]
		}
	}
	return s
}

// TestRandomMessagesMeanTheSame reads some ten thousand connections of one to three messages as net/http does, always the same ones.
func TestRandomMessagesMeanTheSame(t *testing.T) {
	n := 20_000
	if testing.Short() {
		n = 4000
	}
	r := rand.New(rand.NewPCG(9112, 1))
	taken := 0
	for i := range n {
		response := i%2 == 1
		in := ""
		for range 1 + r.IntN(3) {
			in += someMessage(r, response)
		}
		if i%4 > 1 {
			in = mutated(r, in)
		}
		method := ""
		if response {
			method = [...]string{"GET", "GET", "HEAD"}[r.IntN(3)]
		}
		if why := differ([]byte(in), method); why != "" {
			t.Fatalf("connection %d: %s %q\n%s", i, method, in, why)
		}
		if !response {
			rewritten(t, []byte(in))
		}
		taken += len(readOurs(strings.NewReader(in), method).messages)
	}
	if taken < n/2 {
		t.Errorf("only %d messages were taken: the test says little", taken)
	}
}

// requestSeeds are one message of each kind of part.
func requestSeeds() (seeds []string) {
	for _, k := range differences {
		if !k.response {
			seeds = append(seeds, k.example+"GET /next HTTP/1.1\r\n\r\n")
		}
	}
	for _, f := range someFields {
		seeds = append(seeds, "GET http://a.test/ HTTP/1.1\r\n"+f+"\r\nZ: z\r\n\r\n")
	}
	for _, f := range someFraming {
		seeds = append(seeds, "POST / HTTP/1.1\r\n"+strings.Split(fmt.Sprintf(f, 5), "%!")[0]+"\r\n\r\n0\r\n\r\nGET /next HTTP/1.1\r\n\r\n")
	}
	for _, c := range someChunks {
		seeds = append(seeds, "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"+c+"0\r\nX-T: 1\r\n\r\nGET /next HTTP/1.1\r\n\r\n")
	}
	return seeds
}

func responseSeeds() (seeds []string) {
	for _, k := range differences {
		if k.response {
			seeds = append(seeds, k.example)
		}
	}
	for _, s := range someStatuses {
		seeds = append(seeds, "HTTP/1.1 "+s+"\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\n\r\n")
	}
	for _, f := range someFraming {
		seeds = append(seeds, "HTTP/1.1 200 OK\r\n"+strings.Split(fmt.Sprintf(f, 5), "%!")[0]+"\r\n\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n")
	}
	return seeds
}
