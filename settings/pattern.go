package settings

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
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
	switch {
	case text == "":
		return Pattern{}, errors.New("host pattern: it is empty")
	case host == "":
		return Pattern{}, fmt.Errorf("host pattern %q: it has a port and no host; *:%s is every host", text, p.port)
	case strings.ContainsAny(text, "[]"):
		if host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"); !inBrackets(text, host) {
			return Pattern{}, fmt.Errorf("host pattern %q: brackets stand around an IPv6 address, as in [2001:db8::1] or [2001:db8::1]:8443", text)
		}
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
	ascii, ok := asciiName(strings.TrimSuffix(name, "."))
	if !ok {
		return Pattern{}, fmt.Errorf("host pattern %q: want a host (api.example), the names below one (*.example, or .example with itself), an address or network (192.0.2.0/24), or *", text)
	}
	p.name = ascii
	return p, nil
}

// inBrackets reports whether brackets stand in a pattern as they should: around an IPv6 address or network.
func inBrackets(text, host string) bool {
	rest, ok := strings.CutPrefix(text, "["+host+"]")
	return ok && (rest == "" || rest[0] == ':') && strings.Contains(host, ":") && !strings.ContainsAny(host, "[]")
}

// asciiName returns a host's name as it goes on the wire, in lower case. What is ASCII need not be a name by the rules for registering one: those of containers have
// underscores, and r3---sn.example is a host.
func asciiName(name string) (ascii string, ok bool) {
	ascii = strings.ToLower(name)
	if strings.Trim(ascii, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
		var err error
		if ascii, err = idna.Lookup.ToASCII(name); err != nil || strings.ContainsAny(ascii, "*/:@ ,") {
			return "", false
		}
	}
	return ascii, len(ascii) <= 253 && !slices.Contains(strings.Split(ascii, "."), "")
}

// Host returns the one host that a pattern names, and its port where it has one, as a Host field holds them. A pattern of more hosts is an error.
func (p Pattern) Host() (string, error) {
	host := p.name
	if p.prefix.IsValid() {
		if !p.prefix.IsSingleIP() {
			return "", fmt.Errorf("%q is a network, not a host", p.text)
		}
		host = p.prefix.Addr().String()
	} else if p.below {
		return "", fmt.Errorf("%q names more than one host", p.text)
	}
	if p.port == "" {
		return host, nil
	}
	return net.JoinHostPort(host, p.port), nil
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
	if len(list) > MaxEntries {
		return nil, fmt.Errorf("%d host patterns; %d are the most", len(list), MaxEntries)
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
