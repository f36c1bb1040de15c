package proxy

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// Credentials are what a client shows to use the proxy: Basic for HTTP (RFC 7617), user name and password for SOCKS5 (RFC 1929).
// Only digests are kept, of one length whatever was chosen.
type Credentials struct {
	user, password [sha256.Size]byte
}

// ParseCredentials reads USER:PASSWORD. Both have 1 to 255 bytes, which is what RFC 1929 can carry; its errors quote neither.
func ParseCredentials(s string) (*Credentials, error) {
	user, password, ok := strings.Cut(s, ":")
	switch {
	case !ok:
		return nil, errors.New("want USER:PASSWORD, with a colon between the two")
	case user == "" || password == "":
		return nil, errors.New("want USER:PASSWORD, and neither of them empty")
	case len(user) > 255 || len(password) > 255:
		return nil, errors.New("the user name or the password is longer than 255 bytes, the most that SOCKS5 carries")
	}
	return &Credentials{sha256.Sum256([]byte(user)), sha256.Sum256([]byte(password))}, nil
}

// match compares in a time that does not depend on what is right.
func (c *Credentials) match(user, password string) bool {
	u, p := sha256.Sum256([]byte(user)), sha256.Sum256([]byte(password))
	return subtle.ConstantTimeCompare(u[:], c.user[:])&subtle.ConstantTimeCompare(p[:], c.password[:]) == 1
}

// matchBasic judges a Proxy-Authorization field's value.
func (c *Credentials) matchBasic(value string) bool {
	scheme, encoded, _ := strings.Cut(value, " ")
	if !strings.EqualFold(scheme, "Basic") {
		return false
	}
	pair, err := base64.StdEncoding.DecodeString(strings.Trim(encoded, " "))
	if err != nil {
		return false
	}
	user, password, ok := strings.Cut(string(pair), ":")
	return ok && c.match(user, password)
}

// cgnat is what carriers and overlay networks number their clients from. RFC 6598.
var cgnat = netip.MustParsePrefix("100.64.0.0/10")

// isPublic reports whether an address is one of the open internet's: not loopback, private (RFC 1918, RFC 4193), link-local or of a carrier's own network.
func isPublic(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	return !ip.IsLoopback() && !ip.IsPrivate() && !ip.IsLinkLocalUnicast() && !cgnat.Contains(ip)
}

// admits reports whether a client with this address may connect. One that is not an IP address comes from no network.
func (p *Proxy) admits(addr net.Addr) bool {
	if p.cfg.AllowPublic {
		return true
	}
	at, err := netip.ParseAddrPort(addr.String())
	return err != nil || !isPublic(at.Addr()) || isInterface(at.Addr().Unmap().WithZone(""))
}

// refusals tells of clients that were sent away: at most one line each refusalPause, because whoever tries passwords or scans networks tries many times.
// They are no sessions for the same reason.
type refusals struct {
	mu    sync.Mutex
	last  time.Time
	since int // refused without a line of its own
}

const refusalPause = 10 * time.Second

// note counts a refusal. It reports whether to log it, and how many went unlogged before.
func (r *refusals) note(now time.Time) (before int, say bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.last.IsZero() && now.Sub(r.last) < refusalPause {
		r.since++
		return 0, false
	}
	before, r.last, r.since = r.since, now, 0
	return before, true
}

// turnAway logs a client that may not use the proxy.
func (p *Proxy) turnAway(client, why string) {
	if before, say := p.refused.note(time.Now()); say {
		p.log.Warn("turned a client away", "client", client, "reason", why, "others_since_last", before)
	}
}
