package proxy

import (
	"net"
	"net/netip"
	"slices"
)

// Owns returns a function that reports whether a connection to an address would reach one of the listeners, for Config.Own.
// A listener on all addresses is reached by each of this machine's own.
func Owns(listeners ...net.Addr) func(netip.AddrPort) bool {
	return func(target netip.AddrPort) bool {
		return slices.ContainsFunc(listeners, func(l net.Addr) bool { return reaches(target, l) })
	}
}

// ownListener reports whether a connection to target would reach one of the proxy's own listeners.
func (p *Proxy) ownListener(target netip.AddrPort) bool {
	p.mu.Lock()
	var addrs []net.Addr
	for l := range p.listeners {
		addrs = append(addrs, l.Addr())
	}
	p.mu.Unlock()
	return Owns(addrs...)(target)
}

func reaches(target netip.AddrPort, listener net.Addr) bool {
	tcp, ok := listener.(*net.TCPAddr)
	if !ok || tcp.AddrPort().Port() != target.Port() {
		return false
	}
	to, at := target.Addr().Unmap().WithZone(""), tcp.AddrPort().Addr().Unmap().WithZone("")
	if at.IsUnspecified() {
		return to.IsUnspecified() || to.IsLoopback() || isInterface(to)
	}
	// A connection to the unspecified address goes to loopback, or on some systems to any address of the machine.
	return to == at || to.IsUnspecified()
}

// isInterface reports whether the address is one of this machine's. It asks anew each time: addresses come and go with networks.
func isInterface(ip netip.Addr) bool {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return true // refuse rather than loop
	}
	return slices.ContainsFunc(addrs, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		if !ok {
			return false
		}
		own, ok := netip.AddrFromSlice(n.IP)
		return ok && own.Unmap() == ip
	})
}
