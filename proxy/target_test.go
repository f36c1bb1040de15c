package proxy

import (
	"testing"

	"millpond/storage"
)

// TestTargetsPassAsTheyAre: what a target holds beyond its authority is between client and origin, a fragment with it, which RFC 9112, section 3.2, does not allow.
func TestTargetsPassAsTheyAre(t *testing.T) {
	h := startHarness(t, Config{})
	o := startOrigin(t)
	n := uint64(0)
	check := func(t *testing.T, c, up *peerConn, method, sent, want string) *peerConn {
		t.Helper()
		c.send(method + " " + sent + " HTTP/1.1\r\nHost: " + o.addr + "\r\n\r\n")
		if up == nil {
			up = o.accept()
		}
		up.expect(method + " " + want + " HTTP/1.1\r\nHost: " + o.addr + "\r\n\r\n")
		up.send("HTTP/1.1 204 No Content\r\n\r\n")
		c.head()
		n++
		if s := h.session(n); s.Path != want || s.State != storage.Done {
			t.Errorf("%s: the session has the path %q, want %q", sent, s.Path, want)
		}
		return up
	}
	t.Run("absolute form", func(t *testing.T) {
		c := h.dial()
		var up *peerConn
		for _, tt := range []struct{ method, after, want string }{
			{"GET", "", "/"},
			{"GET", "/a#b", "/a#b"},
			{"GET", "/a?b#c?d", "/a?b#c?d"},
			{"GET", "#a", "/#a"},
			{"GET", "?a", "/?a"},
			{"GET", "/a//../%zz?%", "/a//../%zz?%"},
			{"GET", "//b/", "//b/"},
			{"OPTIONS", "", "*"}, // RFC 9112, section 3.2.4
			{"OPTIONS", "/", "/"},
			{"OPTIONS", "?a", "/?a"},
			{"OPTIONS", "#a", "/#a"},
		} {
			up = check(t, c, up, tt.method, "http://"+o.addr+tt.after, tt.want)
		}
		check(t, c, up, "OPTIONS", "HTTP://"+o.addr, "*")
		c.Close()
	})
	t.Run("origin form", func(t *testing.T) {
		c := h.dial()
		c.send("CONNECT " + o.addr + " HTTP/1.1\r\n\r\n")
		c.head()
		var up *peerConn
		for _, as := range []string{"/a#b", "/#", "*", "/a?b#c", "http://other.example/a#b", "a:b"} {
			up = check(t, c, up, "GET", as, as)
		}
	})
}

func TestShownTarget(t *testing.T) {
	for target, want := range map[string]string{
		"/a@b": "/a@b", "*": "*", "http://u:p@a/b@c": "http://a/b@c", "ftp://u:p@p@a?@": "ftp://a?@", "u:p@a:1": "a:1", "a:1": "a:1", "http://u:p@/": "http:///", "": "",
	} {
		if got := shownTarget(target); got != want {
			t.Errorf("%q is shown as %q, want %q", target, got, want)
		}
	}
}
