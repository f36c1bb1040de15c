package proxy

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// The extensions that JA4 counts and does not hash: they tell of the request, not of the client.
const (
	extensionServerName = 0x0000
	extensionALPN       = 0x0010
)

// ja4 is the JA4 fingerprint of a client's hello over TCP: what tells one TLS library, and often one browser, from another, whatever order it shuffles its extensions into.
// https://github.com/FoxIO-LLC/ja4/blob/main/technical_details/JA4.md
func ja4(hello *tls.ClientHelloInfo) string {
	ciphers := withoutGREASE(hello.CipherSuites)
	extensions := withoutGREASE(hello.Extensions)
	name := 'i'
	if slices.Contains(extensions, extensionServerName) {
		name = 'd'
	}
	start := fmt.Sprintf("t%s%c%02d%02d%s", ja4Version(hello.SupportedVersions), name, min(len(ciphers), 99), min(len(extensions), 99), ja4ALPN(hello.SupportedProtos))

	slices.Sort(ciphers)
	slices.Sort(extensions)
	hashed := slices.DeleteFunc(extensions, func(id uint16) bool { return id == extensionServerName || id == extensionALPN })
	end := hexList(hashed)
	if signatures := withoutGREASE(hello.SignatureSchemes); len(signatures) > 0 {
		end += "_" + hexList(signatures)
	}
	if len(hashed) == 0 {
		end = ""
	}
	return start + "_" + ja4Hash(hexList(ciphers)) + "_" + ja4Hash(end)
}

// withoutGREASE returns the values without those that mean nothing and are sent to keep servers tolerant. RFC 8701.
func withoutGREASE[V ~uint16](list []V) []V {
	kept := make([]V, 0, len(list))
	for _, v := range list {
		if v&0x0f0f != 0x0a0a || v>>8 != v&0xff {
			kept = append(kept, v)
		}
	}
	return kept
}

// ja4Version is the highest version that the client offers.
func ja4Version(versions []uint16) string {
	highest := uint16(0)
	for _, v := range withoutGREASE(versions) {
		highest = max(highest, v)
	}
	switch highest {
	case tls.VersionTLS13:
		return "13"
	case tls.VersionTLS12:
		return "12"
	case tls.VersionTLS11:
		return "11"
	case tls.VersionTLS10:
		return "10"
	}
	return "00"
}

// ja4ALPN is the first and last character of the first protocol, or of its hexadecimal form where one of them is neither a letter nor a digit.
func ja4ALPN(protocols []string) string {
	if len(protocols) == 0 || protocols[0] == "" {
		return "00"
	}
	first := protocols[0]
	if !alphanumeric(first[0]) || !alphanumeric(first[len(first)-1]) {
		first = hex.EncodeToString([]byte(first))
	}
	return first[:1] + first[len(first)-1:]
}

func alphanumeric(b byte) bool {
	return '0' <= b && b <= '9' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z'
}

// hexList writes the values as four hexadecimal digits each, with commas between.
func hexList[V ~uint16](list []V) string {
	var b strings.Builder
	for i, v := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%04x", uint16(v))
	}
	return b.String()
}

// ja4Hash is the first 12 hexadecimal digits of the SHA-256 of a list, and zeros for an empty one.
func ja4Hash(list string) string {
	if list == "" {
		return "000000000000"
	}
	sum := sha256.Sum256([]byte(list))
	return hex.EncodeToString(sum[:6])
}
