package server

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// deviceAddresses returns where devices in the network reach the listeners, the likeliest first: a listener's own address, or where it listens on all,
// each of this machine's but loopback and link-local ones.
func deviceAddresses(listeners []netip.AddrPort) []string {
	addresses := []string{}
	var machine []netip.Addr // asked for once, where needed
	for _, l := range listeners {
		ip := l.Addr()
		switch {
		case !ip.IsValid() || ip.IsLoopback():
		case !ip.IsUnspecified():
			addresses = append(addresses, l.String())
		default:
			if machine == nil {
				machine = machineAddresses()
			}
			for _, found := range machine {
				if ip.Is6() || found.Is4() {
					addresses = append(addresses, netip.AddrPortFrom(found, l.Port()).String())
				}
			}
		}
	}
	return addresses
}

// machineAddresses returns this machine's addresses that others can reach, the likeliest first: that from which it would call the internet, then those
// of private networks, IPv4 before IPv6, and last those that only this machine's containers and virtual machines know.
func machineAddresses() []netip.Addr {
	type address struct {
		netip.Addr
		rank int
	}
	var all []address
	interfaces, _ := net.Interfaces() // none is what we know then
	for _, i := range interfaces {
		if i.Flags&net.FlagUp == 0 {
			continue
		}
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			prefix, err := netip.ParsePrefix(a.String())
			if err != nil {
				continue
			}
			ip := prefix.Addr().Unmap()
			if ip.IsLoopback() || ip.IsLinkLocalUnicast() {
				continue
			}
			all = append(all, address{ip, rank(i.Name, ip)})
		}
	}
	if out, ok := outward(); ok {
		for i := range all {
			if all[i].Addr == out {
				all[i].rank = -1
			}
		}
	}
	slices.SortStableFunc(all, func(a, b address) int { return cmp.Compare(a.rank, b.rank) })
	found := make([]netip.Addr, len(all))
	for i := range all {
		found[i] = all[i].Addr
	}
	return found
}

// rank orders addresses: a lower one is likelier to be what a device in the same network can use.
func rank(interfaceName string, ip netip.Addr) int {
	rank := 0
	for _, inner := range []string{"docker", "br-", "veth", "virbr", "vmnet", "vboxnet", "vEthernet", "cni", "podman", "lxc"} {
		if strings.HasPrefix(interfaceName, inner) {
			rank += 4
		}
	}
	if !ip.Is4() {
		rank += 2
	}
	if !ip.IsPrivate() {
		rank++
	}
	return rank
}

// outward returns the address from which this machine would call the internet. Connecting a UDP socket sends nothing; 192.0.2.1 is for documentation (RFC 5737).
func outward() (netip.Addr, bool) {
	c, err := net.Dial("udp4", "192.0.2.1:9")
	if err != nil {
		return netip.Addr{}, false
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), true
}
