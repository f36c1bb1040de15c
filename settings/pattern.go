package settings

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// Pattern names hosts, as its text says:
//
//   - every host
//     api.example      this host
//     *.example        every name below it
//     .example         itself and every name below it
//     192.0.2.7        this address, in whatever form it is written
//     192.0.2.0/24     every address in the network
//
// A port may follow, as in *.example:8443 and [2001:db8::1]:8443; without one every port matches.
type Pattern struct {
	text   string
	port   string       // empty: every one
	prefix netip.Prefix // of addresses; invalid for names
	name   string       // ASCII, lower case, without wildcard; empty: every host
	below  bool         // names below it
	itself bool
}

// ParsePattern reads a pattern.
func ParsePattern(text string) (Pattern, error) {
	p := Pattern{text: text}
	if strings.Contains(text, "://") { // before its scheme is taken for a host, and its host for a port
		return Pattern{}, fmt.Errorf("%q: want a host name, not a URL", text)
	}
	host := text
	if h, port, err := net.SplitHostPort(text); err == nil {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return Pattern{}, fmt.Errorf("host pattern %q: %q is not a port", text, port)
		}
		host, p.port = h, port
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	switch {
	case host == "":
		return Pattern{}, errors.New("host pattern: it is empty")
	case host == "*":
		p.itself, p.below = true, true
		return p, nil
	}
	if prefix, err := netip.ParsePrefix(host); err == nil {
		p.prefix = prefix.Masked()
		return p, nil
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		ip = ip.Unmap().WithZone("")
		p.prefix = netip.PrefixFrom(ip, ip.BitLen())
		return p, nil
	}
	name := host
	switch {
	case strings.HasPrefix(name, "*."):
		name, p.below = name[2:], true
	case strings.HasPrefix(name, "."):
		name, p.below, p.itself = name[1:], true, true
	default:
		p.itself = true
	}
	ascii, err := idna.Lookup.ToASCII(strings.TrimSuffix(name, "."))
	if err != nil || ascii == "" || len(ascii) > 253 || strings.ContainsAny(ascii, "*/:@ ,") {
		return Pattern{}, fmt.Errorf("host pattern %q: want a host (api.example), the names below one (*.example, or .example with itself), an address or network (192.0.2.0/24), or *", text)
	}
	p.name = ascii
	return p, nil
}

// String returns the pattern as it was written.
func (p Pattern) String() string { return p.text }

// Match reports whether the pattern means a host, as it goes on the wire and without brackets, and a port.
func (p Pattern) Match(host, port string) bool {
	if p.port != "" && p.port != port {
		return false
	}
	if p.prefix.IsValid() {
		ip, err := netip.ParseAddr(host)
		return err == nil && p.prefix.Contains(ip.Unmap().WithZone(""))
	}
	if p.name == "" {
		return true
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == p.name {
		return p.itself
	}
	return p.below && strings.HasSuffix(host, "."+p.name)
}

func parsePatterns(list []string) ([]Pattern, error) {
	if len(list) > maxEntries {
		return nil, fmt.Errorf("%d host patterns; %d are the most", len(list), maxEntries)
	}
	patterns := make([]Pattern, len(list))
	for i, text := range list {
		var err error
		if patterns[i], err = ParsePattern(text); err != nil {
			return nil, err
		}
	}
	return patterns, nil
}

func matchAny(patterns []Pattern, host, port string) bool {
	for _, p := range patterns {
		if p.Match(host, port) {
			return true
		}
	}
	return false
}
