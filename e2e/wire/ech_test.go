package wire

import (
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"

	"millpond/e2e/harness"
)

// ech asks a server that speaks Encrypted Client Hello, with a client that does not offer it, and with one that does.
func ech(r *run) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	r.must(err)
	config := echConfig(key.PublicKey().Bytes())
	cert, err := r.origin.Authority.Server("public.example", "secret.example")
	r.must(err)
	addr := r.tlsOrigin(&tls.Config{
		Certificates:             []tls.Certificate{cert},
		EncryptedClientHelloKeys: []tls.EncryptedClientHelloKey{{Config: config, PrivateKey: key.Bytes(), SendAsRetry: true}},
	})
	plain := &tls.Config{RootCAs: r.roots, ServerName: "secret.example", NextProtos: []string{r.alpn()}}
	offering := plain.Clone()
	offering.EncryptedClientHelloConfigList = binary.BigEndian.AppendUint16(nil, uint16(len(config)))
	offering.EncryptedClientHelloConfigList = append(offering.EncryptedClientHelloConfigList, config...)

	// The client checks our certificate for the public name, and learns that ECH is not to be had: it has no configuration to try again with.
	_, err = harness.DialTLS(r.program.Proxy, addr, offering)
	var rejected *tls.ECHRejectionError
	if !errors.As(err, &rejected) || len(rejected.RetryConfigList) > 0 {
		r.Errorf("a client that offers ECH got %v; want a rejection without configurations", err)
	}
	c, err := harness.DialTLS(r.program.Proxy, addr, plain)
	r.must(err)
	defer c.Close()
	r.must(r.ask(c, addr))
}

// echConfig is an ECHConfig for the public name public.example. RFC 9849, section 4.
func echConfig(public []byte) []byte {
	const name = "public.example"
	contents := []byte{7, 0, 0x20}                                                     // id, DHKEM(X25519, HKDF-SHA256)
	contents = append(binary.BigEndian.AppendUint16(contents, 32), public...)          // its key
	contents = append(contents, 0, 4, 0, 1, 0, 1)                                      // HKDF-SHA256 with AES-128-GCM
	contents = append(contents, 32, byte(len(name)))                                   // longest name to hide
	contents = append(append(contents, name...), 0, 0)                                 // no extensions
	config := binary.BigEndian.AppendUint16([]byte{0xfe, 0x0d}, uint16(len(contents))) // version
	return append(config, contents...)
}
