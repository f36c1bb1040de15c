package server

import (
	"bytes"
	"crypto/x509"
	"embed"
	"html/template"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
)

//go:embed setup
var setupFiles embed.FS

var setupPage = template.Must(template.ParseFS(setupFiles, "setup/*.html"))

// checkPath is the picture by which the page tells whether its requests arrive.
const checkPath = "/yes.svg"

// SetupConfig says what the set-up page tells.
type SetupConfig struct {
	CA    func() *x509.Certificate // what devices install at present
	Proxy netip.AddrPort           // a listener of the proxy; named where the page cannot tell by which address it was reached
	Auth  bool                     // the proxy's clients must show credentials
}

// Setup answers devices that ask the proxy itself for help: a page with the CA certificate and the steps to install it, and the pictures by which it tells
// whether the device goes through the proxy and trusts it. It holds nothing of the dashboard, and the certificate is no secret, so it needs no token; and
// the dashboard does not serve it, so that no page of it shares the dashboard's origin.
//
// It works without scripts, but for the check and the buttons that copy.
func Setup(cfg SetupConfig) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		var page bytes.Buffer
		if err := setupPage.ExecuteTemplate(&page, "page.html", newSetupData(cfg, r)); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(page.Bytes())
	})
	for _, form := range caForms {
		mux.HandleFunc("GET /ca."+form.ending, func(w http.ResponseWriter, _ *http.Request) { form.serve(w, cfg.CA()) })
	}
	for name, mediaType := range map[string]string{
		"setup.js": "text/javascript; charset=utf-8", "setup.css": "text/css; charset=utf-8", checkPath[1:]: "image/svg+xml",
	} {
		content, err := fs.ReadFile(setupFiles, "setup/"+name)
		if err != nil {
			panic(err) // it is in the program
		}
		mux.HandleFunc("GET /"+name, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", mediaType)
			_, _ = w.Write(content)
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		if r.URL.Path == checkPath {
			h.Set("Cross-Origin-Resource-Policy", "cross-origin") // the page loads it from the proxy's names, wherever it is itself
		}
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; img-src data: http://millpond.internal https://check.millpond.internal; "+
			"base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		mux.ServeHTTP(w, r)
	})
}

// setupData is what the page's template shows.
type setupData struct {
	Name, Fingerprint string
	Platform          string // which steps are open: ios, android, macos, windows or linux; empty for none
	Firefox           bool
	Auth              bool
	Here              bool   // the device is the machine that Millpond runs on
	Address           string // the proxy's, host:port, as the device reaches it
	Host, Port        string
	pin               string
}

func newSetupData(cfg SetupConfig, r *http.Request) *setupData {
	ca := cfg.CA()
	at := reachedAt(r, cfg.Proxy)
	host, port, _ := net.SplitHostPort(at)
	agent := r.UserAgent()
	ip, _ := netip.ParseAddr(host)
	return &setupData{
		Name: ca.Subject.CommonName, Fingerprint: fingerprint(ca), pin: keyPin(ca),
		Platform: platformOf(agent), Firefox: strings.Contains(agent, "Firefox/"),
		Auth: cfg.Auth, Here: ip.IsLoopback() || host == "localhost", Address: at, Host: host, Port: port,
	}
}

// Fill puts this proxy into a command: {address} is its host:port, {proxy} its URL with room for credentials, {page} this page's, {host} and {port} the
// parts of the address, {pin} the hash of the authority's key. What it puts in needs no quoting in any shell.
func (d *setupData) Fill(command string) string {
	proxy := "http://" + d.Address
	if d.Auth {
		proxy = "http://USER:PASSWORD@" + d.Address
	}
	return strings.NewReplacer("{address}", d.Address, "{proxy}", proxy, "{page}", "http://"+d.Address, "{host}", d.Host, "{port}", d.Port, "{pin}", d.pin).Replace(command)
}

// reachedAt returns the proxy's address as the device has it: the one it asked, or where it asked through the proxy, the one at which that was reached.
// A Host that could mean something to a shell is not believed.
func reachedAt(r *http.Request, listener netip.AddrPort) string {
	host, port := splitHost(r.Host)
	if _, err := strconv.ParseUint(port, 10, 16); err == nil && host != "millpond.internal" && !strings.HasSuffix(host, ".millpond.internal") && isPlainHost(host) {
		return net.JoinHostPort(host, port)
	}
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		addr := local.AddrPort()
		return netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port()).String()
	}
	return listener.String()
}

// isPlainHost reports whether a host is an IP address or a name of letters, digits, hyphens and dots.
func isPlainHost(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Zone() == ""
	}
	return host != "" && len(host) <= 253 && !strings.HasPrefix(host, "-") && strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789-.") == ""
}

// platformOf guesses whose steps to open from the User-Agent field. An iPad says that it is a Mac.
func platformOf(agent string) string {
	for _, p := range []struct{ word, platform string }{
		{"iPhone", "ios"}, {"iPad", "ios"}, {"Android", "android"}, {"Macintosh", "macos"}, {"Windows", "windows"}, {"Linux", "linux"},
	} {
		if strings.Contains(agent, p.word) {
			return p.platform
		}
	}
	return ""
}
