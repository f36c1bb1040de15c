package proxy

import (
	"crypto/tls"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// helloOf makes a hello of hexadecimal lists, as JA4's raw form writes them.
func helloOf(t *testing.T, ciphers, extensions, signatures string, protocols []string, versions ...uint16) *tls.ClientHelloInfo {
	list := func(text string) (values []uint16) {
		for item := range strings.SplitSeq(text, ",") {
			if item == "" {
				continue
			}
			n, err := strconv.ParseUint(item, 16, 16)
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, uint16(n))
		}
		return values
	}
	hello := &tls.ClientHelloInfo{CipherSuites: list(ciphers), Extensions: list(extensions), SupportedProtos: protocols, SupportedVersions: versions}
	for _, s := range list(signatures) {
		hello.SignatureSchemes = append(hello.SignatureSchemes, tls.SignatureScheme(s))
	}
	return hello
}

// The values are those that FoxIO publishes, with the lists in the order of the wire: technical_details/JA4.md, and python/test/testdata of the same repository.
func TestJA4(t *testing.T) {
	const chrome = "1301,1302,1303,c02b,c02f,c02c,c030,cca9,cca8,c013,c014,009c,009d,002f,0035"
	const signatures = "0403,0804,0401,0503,0805,0501,0806,0601"
	for _, test := range []struct {
		name  string
		hello *tls.ClientHelloInfo
		want  string
	}{
		{
			"Chrome, with GREASE everywhere",
			helloOf(t, "0a0a,"+chrome, "dada,001b,0000,0033,0010,4469,0017,002d,000d,0005,0023,0012,002b,ff01,000b,000a,0015,fafa", "8a8a,"+signatures, []string{"h2", "http/1.1"}, 0x2a2a, 0x304, 0x303),
			"t13d1516h2_8daaf6152771_e5627efa2ab1",
		},
		{
			"Firefox",
			helloOf(t, "1301,1303,1302,c02b,c02f,cca9,cca8,c02c,c030,c00a,c009,c013,c014,009c,009d,002f,0035", "0000,0017,ff01,000a,000b,0023,0010,0005,0022,0033,002b,000d,002d,001c,0015", "0403,0503,0603,0804,0805,0806,0401,0501,0601,0203,0201", []string{"h2", "http/1.1"}, 0x304, 0x303),
			"t13d1715h2_5b57614c22b0_3d5424432f57",
		},
		{
			"a value that looks like GREASE and is none",
			helloOf(t, chrome, "fe0d,0010,0017,0033,44cd,ff01,000a,000d,0023,002b,000b,ca34,002d,0000,0005,001b,0012", "0904,0905,0906,"+signatures, []string{"h2"}, 0x304),
			"t13d1517h2_8daaf6152771_cb7bf5808d99",
		},
		{"nothing", &tls.ClientHelloInfo{}, "t00i000000_000000000000_000000000000"},
	} {
		before := slices.Clone(test.hello.Extensions)
		if got := ja4(test.hello); got != test.want {
			t.Errorf("%s: got %s, want %s", test.name, got, test.want)
		}
		if !slices.Equal(test.hello.Extensions, before) {
			t.Errorf("%s: the hello was changed", test.name)
		}
	}
	many := make([]uint16, 120)
	if got := ja4(&tls.ClientHelloInfo{CipherSuites: many, SupportedVersions: []uint16{0x302}}); !strings.HasPrefix(got, "t11i990000_") {
		t.Errorf("120 ciphers: got %s", got)
	}
}

func TestJA4OfProtocols(t *testing.T) {
	for protocol, want := range map[string]string{"h2": "h2", "http/1.1": "h1", "x": "xx", "": "00", "\xab": "ab", "\xab\xcd": "ad", "0\xab": "3b", "01\xab\xcd": "3d"} {
		if got := ja4ALPN([]string{protocol}); got != want {
			t.Errorf("%s: got %s, want %s", hex.EncodeToString([]byte(protocol)), got, want)
		}
	}
}
