package server

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// answerTime bounds the writing of an answer; bodies roll it on as the reader makes progress.
const answerTime = time.Minute

// guard stands before every route. It checks, in this order, that the request names the dashboard (Host, against DNS rebinding),
// that no other site's page sent it (Origin, Sec-Fetch-Site), and that it shows the token its route asks for.
type guard struct {
	next       *routes
	allowHosts []string // lower case
	token      [sha256.Size]byte
	control    *[sha256.Size]byte // nil: there is none
	logins     *logins
	shares     *shares
}

func newGuard(token, control string, allowHosts []string, next *routes, shares *shares, now func() time.Time) *guard {
	g := &guard{next: next, token: sha256.Sum256([]byte(token)), logins: newLogins(now), shares: shares}
	if control != "" {
		sum := sha256.Sum256([]byte(control))
		g.control = &sum
	}
	for _, h := range allowHosts {
		g.allowHosts = append(g.allowHosts, strings.ToLower(strings.TrimSuffix(h, ".")))
	}
	return g
}

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var deadline time.Time // none for changes: deleting a million sessions takes its time, and the answer fits any socket's buffer
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		deadline = time.Now().Add(answerTime)
	}
	_ = http.NewResponseController(w).SetWriteDeadline(deadline) // every net/http connection can; it stays for the next request
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")

	wants := g.next.access(r)
	if !g.hostAllowed(r) {
		writeProblem(w, problem(http.StatusMisdirectedRequest,
			"The dashboard does not answer to the name %q. Use its own address, or start Millpond with --allow-host %s.", r.Host, r.Host))
		return
	}
	if !g.ownPage(r, wants) {
		writeProblem(w, problem(http.StatusForbidden, "Another site's page may not call the dashboard. Open the dashboard itself."))
		return
	}
	switch wants {
	case withToken:
		login, ok := g.hasToken(r)
		if !ok {
			h.Set("WWW-Authenticate", `Bearer realm="Millpond"`)
			writeProblem(w, problem(http.StatusUnauthorized,
				"The token is missing or wrong. Open the link that Millpond printed when it started, or send Authorization: Bearer with its token."))
			return
		}
		if login != nil {
			r = r.WithContext(context.WithValue(r.Context(), loginKey{}, login))
		}
	case withControl:
		if !g.isControl(r) {
			writeProblem(w, problem(http.StatusUnauthorized, "Only the command millpond backup may call this, on the machine and as the user that Millpond runs on and as."))
			return
		}
	case withShare:
		share, ok := g.sharedBy(r)
		if !ok {
			writeProblem(w, noShare())
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), shareKey{}, share))
	}
	g.next.ServeHTTP(w, r)
}

// ownName is a name of this machine (RFC 6761, section 6.3) that other servers on it hardly use: browsers give a host's cookies to the servers on all its ports.
const ownName = "millpond.localhost"

// hostAllowed reports whether Host names the dashboard: a loopback name, or the address that the connection came in on, with that
// connection's port; or what --allow-host named.
func (g *guard) hostAllowed(r *http.Request) bool {
	host, port := splitHost(r.Host)
	if g.listed(host, port) {
		return true
	}
	addr, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if addr == nil {
		return false
	}
	local, err := netip.ParseAddrPort(addr.String())
	if err != nil || port != strconv.Itoa(int(local.Port())) {
		return false
	}
	if host == "localhost" || host == ownName {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && (ip.IsLoopback() || ip.Unmap() == local.Addr().Unmap().WithZone(""))
}

func (g *guard) listed(host, port string) bool {
	return slices.Contains(g.allowHosts, host) || slices.Contains(g.allowHosts, net.JoinHostPort(host, port))
}

// splitHost returns the name, in lower case and without brackets and final dot, and the port, 80 where none is given.
func splitHost(hostport string) (host, port string) {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		host, port = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]"), "80"
	}
	return strings.ToLower(strings.TrimSuffix(host, ".")), port
}

// ownPage reports whether the request was sent by a page of the dashboard, or by no page at all.
// Cookies are shared among the ports of a host, so same-site is not enough.
func (g *guard) ownPage(r *http.Request, wants access) bool {
	if origins := r.Header.Values("Origin"); len(origins) > 1 {
		return false // no browser sends two
	} else if len(origins) == 1 && origins[0] != "" {
		return g.ownOrigin(r, origins[0])
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
	default:
		// A link on another site may lead to the app: it holds no data, and asks for a token by itself.
		return wants == openToAll && r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
	}
	// Browsers send Origin with every change and every WebSocket handshake: without one only a Bearer token, which no browser adds by itself, will do.
	safe := (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Header.Get("Upgrade") == ""
	return safe || bearer(r) != ""
}

// ownOrigin reports whether an origin is the dashboard's. It speaks no TLS itself: https is a reverse proxy's, whose name --allow-host tells.
func (g *guard) ownOrigin(r *http.Request, origin string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return false // also "null", a sandboxed page
	}
	return u.Scheme == "http" && strings.EqualFold(u.Host, r.Host) || g.listed(splitHost(u.Host))
}

// bearer returns the token of the Authorization field. RFC 6750, section 2.1.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// hasToken reports whether the request shows the token, or the cookie of a login, which it returns.
func (g *guard) hasToken(r *http.Request) (*login, bool) {
	if token := bearer(r); token != "" {
		return nil, g.isToken(token)
	}
	for _, c := range r.CookiesNamed(cookieName("millpond", r)) {
		if login := g.logins.use(c.Value); login != nil {
			return login, true
		}
	}
	return nil, false
}

// isToken compares in a time that does not depend on the token.
func (g *guard) isToken(token string) bool {
	got := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(got[:], g.token[:]) == 1
}

// isControl reports whether a program on this machine, and no page, shows the control file's secret.
func (g *guard) isControl(r *http.Request) bool {
	if g.control == nil || r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" {
		return false
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if local == nil {
		return false
	}
	to, err := netip.ParseAddrPort(local.String())
	from, fromErr := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || fromErr != nil || !from.Addr().Unmap().IsLoopback() && from.Addr() != to.Addr() {
		return false
	}
	got := sha256.Sum256([]byte(bearer(r)))
	return subtle.ConstantTimeCompare(got[:], g.control[:]) == 1
}

// cookieName holds the port that the browser sees, because browsers do not separate cookies by port.
func cookieName(name string, r *http.Request) string {
	_, port := splitHost(r.Host)
	return name + "_" + port
}
