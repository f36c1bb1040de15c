package main

import (
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
	Config        string        `env:"MILLPOND_CONFIG" type:"existingfile" placeholder:"FILE" help:"A file of settings: TOML, each flag without its dashes as the key, as in passthrough = [\"*.example\"]. Flags and environment variables count before it."`

	file *configFile // nil: none
}

// BeforeResolve reads the settings file.
func (w *wayOut) BeforeResolve(ctx *kong.Context) error {
	for _, flag := range ctx.Flags() {
		if flag.Name != "config" {
			continue
		}
		name, _ := ctx.FlagValue(flag).(string)
		if name == "" {
			return nil
		}
		file, err := readConfig(name)
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
		o.ClientCerts = append(o.ClientCerts, settings.ClientCert(c))
	}
	for _, m := range w.MinTLS {
		o.MinTLS = append(o.MinTLS, settings.MinTLS(m))
	}
	origin := make(map[string]string)
	for name, flag := range map[string]string{
		"upstream_proxy": "upstream-proxy", "no_proxy": "no-proxy", "passthrough": "passthrough",
		"insecure_hosts": "insecure-host", "client_certs": "client-cert", "min_tls": "min-tls",
	} {
		origin[name] = "--" + flag
		if w.file != nil && w.file.used[flag] != "" {
			origin[name] = w.file.used[flag]
		}
	}
	return o, origin
}

func texts(patterns []pattern) []string {
	var all []string
	for _, p := range patterns {
		all = append(all, string(p))
	}
	return all
}

// pattern is a host pattern.
type pattern string

// UnmarshalText checks it.
func (p *pattern) UnmarshalText(text []byte) error {
	*p = pattern(text)
	_, err := settings.ParsePattern(string(text))
	return err
}

// upstreamProxy is the URL of a proxy; see checker.
type upstreamProxy string

func (u *upstreamProxy) check() error {
	_, err := settings.ParseUpstreamProxy(string(*u), nil)
	return err
}

type clientCert settings.ClientCert

// UnmarshalText reads HOST=FILE or HOST=CERT+KEY.
func (c *clientCert) UnmarshalText(text []byte) error {
	parsed, err := settings.ParseClientCert(string(text))
	*c = clientCert(parsed)
	return err
}

type minTLS settings.MinTLS

// UnmarshalText reads HOST=VERSION.
func (m *minTLS) UnmarshalText(text []byte) error {
	parsed, err := settings.ParseMinTLS(string(text))
	*m = minTLS(parsed)
	return err
}

// loadSettings joins the flags with what the dashboard has set. What it set and cannot be used is only told: a start must not fail for it.
func (c *serveCommand) loadSettings(store *storage.Store, warn func(error)) (*settings.Live, error) {
	out, origin := c.out()
	live, err := settings.Load(store, out, origin)
	if live == nil {
		return nil, fmt.Errorf("use the settings: %w", err)
	}
	if err != nil {
		warn(err)
	}
	return live, nil
}
