package main

import (
	"errors"
	"fmt"

	"github.com/alecthomas/kong"

	"millpond/settings"
	"millpond/storage"
)

// wayOut are the flags about how upstream is reached. Each can stand in the settings file, and those that the API changes can be set there too.
type wayOut struct {
	UpstreamProxy upstreamProxy `env:"MILLPOND_UPSTREAM_PROXY" placeholder:"URL" help:"Reach upstream through another proxy: http://, https:// or socks5://, with USER:PASSWORD@ where it wants them."`
	NoProxy       []pattern     `env:"MILLPOND_NO_PROXY" placeholder:"HOST" help:"What is reached without the upstream proxy, in the form of NO_PROXY: a name means those below it, too; an address, a network, each with or without a port. Loopback always is. May be repeated."`
	Passthrough   []pattern     `env:"MILLPOND_PASSTHROUGH" placeholder:"HOST" help:"A host whose tunnels pass unread: api.example, *.example for what is below, .example for both, an address or network, each with or without a port. May be repeated."`
	InsecureHost  []pattern     `env:"MILLPOND_INSECURE_HOST" placeholder:"HOST" help:"A host whose certificate is accepted though it does not verify; the session says so. May be repeated."`
	ClientCert    []clientCert  `env:"MILLPOND_CLIENT_CERT" placeholder:"HOST=FILE" help:"The certificate for a host that wants one: PEM, with its key in the same file or as HOST=CERT+KEY. Read again when replaced. May be repeated."`
	MinTLS        []minTLS      `env:"MILLPOND_MIN_TLS" name:"min-tls" placeholder:"HOST=VERSION" help:"The oldest version of TLS to speak with a host: 1.0, 1.1, 1.2 or 1.3. 1.2 for every other. May be repeated."`
	Config        string        `env:"MILLPOND_CONFIG" type:"path" placeholder:"FILE" help:"A file of settings: TOML, each flag without its dashes as the key, as in passthrough = [\"*.example\"]. Flags and environment variables count before it."`

	file *configFile // nil: none
}

// BeforeResolve reads the settings file.
func (w *wayOut) BeforeResolve(ctx *kong.Context) error {
	for _, flag := range ctx.Flags() {
		if flag.Name != "config" {
			continue
		}
		name, _ := ctx.FlagValue(flag).(string)
		o := findOrigins(ctx, nil)
		if o["config"] == nil {
			return nil
		}
		if name == "" {
			return o.wrong("config", 0, errors.New("it is empty: name a file, or leave it out"))
		}
		file, err := readConfig(name)
		var at *wrongLine
		if err != nil && !errors.As(err, &at) {
			return o.wrong("config", 0, err)
		}
		if err != nil {
			return err
		}
		if err := file.check(ctx.Flags()); err != nil {
			return err
		}
		w.file = file
		ctx.AddResolver(file)
	}
	return nil
}

// out returns what the flags set, and where each value comes from, by its name in settings.Out's JSON.
func (w *wayOut) out() (settings.Out, map[string]string) {
	o := settings.Out{UpstreamProxy: string(w.UpstreamProxy), NoProxy: texts(w.NoProxy), Passthrough: texts(w.Passthrough), InsecureHosts: texts(w.InsecureHost)}
	for _, c := range w.ClientCert {
		o.ClientCerts = append(o.ClientCerts, c.ClientCert)
	}
	for _, m := range w.MinTLS {
		o.MinTLS = append(o.MinTLS, m.MinTLS)
	}
	origin := make(map[string]string)
	for name, flag := range map[string]string{
		"upstream_proxy": "upstream-proxy", "no_proxy": "no-proxy", "passthrough": "passthrough",
		"insecure_hosts": "insecure-host", "client_certs": "client-cert", "min_tls": "min-tls",
		"max_bytes": "max-bytes", "max_age": "max-age", "max_sessions": "max-sessions",
	} {
		origin[name] = "--" + flag
		if w.file != nil && w.file.used[flag] != "" {
			origin[name] = w.file.used[flag]
		}
	}
	return o, origin
}

func texts[T ~string](values []T) []string {
	var all []string
	for _, v := range values {
		all = append(all, string(v))
	}
	return all
}

// pattern is a host pattern.
type pattern string

// check implements checker.
func (p pattern) check() error {
	_, err := settings.ParsePattern(string(p))
	return err
}

// upstreamProxy is the URL of a proxy.
type upstreamProxy string

// check implements checker.
func (u upstreamProxy) check() error {
	_, err := settings.ParseUpstreamProxy(string(u), nil)
	return err
}

// clientCert is HOST=FILE or HOST=CERT+KEY.
type clientCert struct {
	settings.ClientCert
	err error
}

// UnmarshalText reads it.
func (c *clientCert) UnmarshalText(text []byte) error {
	c.ClientCert, c.err = settings.ParseClientCert(string(text))
	return nil
}

// check implements checker.
func (c clientCert) check() error { return c.err }

// minTLS is HOST=VERSION.
type minTLS struct {
	settings.MinTLS
	err error
}

// UnmarshalText reads it.
func (m *minTLS) UnmarshalText(text []byte) error {
	m.MinTLS, m.err = settings.ParseMinTLS(string(text))
	return nil
}

// check implements checker.
func (m minTLS) check() error { return m.err }

// loadSettings joins the flags with what the dashboard has set.
func (c *serveCommand) loadSettings(store *storage.Store) (*settings.Live, error) {
	out, origin := c.out()
	out.Keep = c.keep.set()
	live, err := settings.Load(store, out, origin)
	if err != nil {
		return nil, fmt.Errorf("use the settings: %w", err)
	}
	return live, nil
}
