package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"millpond/settings"
)

// noLimit is the value of a limit that is none.
const noLimit = "none"

// fromDashboard is where a setting comes from that the API made, and so can change.
const fromDashboard = "dashboard"

// Settings is how upstream is reached, and how much is kept. Every entry says where it comes from. Secrets are not told: no password, and no certificate's key.
type Settings struct {
	UpstreamProxy *UpstreamProxySetting `json:"upstream_proxy,omitempty" doc:"The proxy through which upstream is reached. Absent: none."`
	NoProxy       []HostSetting         `json:"no_proxy" nullable:"false" doc:"What is reached without it, in the form of NO_PROXY: a name means those below it too. Loopback always is."`
	Passthrough   []HostSetting         `json:"passthrough" nullable:"false" doc:"Hosts whose tunnels pass unread."`
	InsecureHosts []HostSetting         `json:"insecure_hosts" nullable:"false" doc:"Hosts whose certificate is accepted though it does not verify; sessions say so."`
	MinTLS        []MinTLSSetting       `json:"min_tls" nullable:"false" doc:"The oldest version of TLS that is spoken with a host. The first that fits counts; 1.2 for every other."`
	ClientCerts   []ClientCertSetting   `json:"client_certs" nullable:"false" doc:"The certificates of hosts that ask for one. The first that fits counts."`
	MaxBytes      LimitSetting          `json:"max_bytes" doc:"How much of the disk sessions may take, as 20GiB."`
	MaxAge        LimitSetting          `json:"max_age" doc:"How long ago a session may have ended, as 7d or 36h."`
	MaxSessions   LimitSetting          `json:"max_sessions" doc:"How many sessions there may be."`
}

// LimitSetting is a limit. What is beyond one goes, the oldest sessions first, but for pinned, shared and open ones.
type LimitSetting struct {
	Value string `json:"value" doc:"none for no limit."`
	From  string `json:"from" doc:"As for hosts; default where nothing set it."`
}

// HostSetting is a host pattern that is set.
type HostSetting struct {
	Host string `json:"host" doc:"A host pattern: api.example, *.example for the names below, .example for both, an address or network, *; each with or without a port."`
	From string `json:"from" doc:"dashboard, or what set it at the start: a flag, as --passthrough, or a file with the line. Only the dashboard's can be changed."`
}

// UpstreamProxySetting is the upstream proxy that is set.
type UpstreamProxySetting struct {
	URL         string `json:"url" doc:"Without the password."`
	HasPassword bool   `json:"has_password"`
	From        string `json:"from" doc:"As for hosts."`
}

// MinTLSSetting is an oldest version of TLS that is set.
type MinTLSSetting struct {
	settings.MinTLS
	From string `json:"from" doc:"As for hosts."`
}

// ClientCertSetting is a client certificate that is set.
type ClientCertSetting struct {
	HostSetting
	Subject  string     `json:"subject,omitempty"`
	NotAfter *time.Time `json:"not_after,omitempty"`
	Problem  string     `json:"problem,omitempty" doc:"Why its file cannot be read now; the certificate that was read before is used."`
}

// SettingsChange changes what the dashboard has set; what is absent stays. A list replaces the dashboard's own entries, and leaves those of the start.
type SettingsChange struct {
	UpstreamProxy *string            `json:"upstream_proxy,omitempty" maxLength:"1000" doc:"Its URL: http, https or socks5, with user and password where it wants them. Empty: none."`
	NoProxy       []string           `json:"no_proxy,omitempty" nullable:"false"`
	Passthrough   []string           `json:"passthrough,omitempty" nullable:"false"`
	InsecureHosts []string           `json:"insecure_hosts,omitempty" nullable:"false"`
	MinTLS        []settings.MinTLS  `json:"min_tls,omitempty" nullable:"false"`
	ClientCerts   []ClientCertChange `json:"client_certs,omitempty" nullable:"false"`
	MaxBytes      *string            `json:"max_bytes,omitempty" maxLength:"100" doc:"As 20GiB; none for no limit; empty for the default."`
	MaxAge        *string            `json:"max_age,omitempty" maxLength:"100" doc:"As 7d or 36h; none, or empty, for no limit."`
	MaxSessions   *string            `json:"max_sessions,omitempty" maxLength:"100" doc:"none, or empty, for no limit."`
}

// ClientCertChange is a client certificate to set.
type ClientCertChange struct {
	Host string `json:"host" doc:"A host pattern."`
	PEM  string `json:"pem,omitempty" doc:"The certificate, further ones of its chain, and its private key. Absent: those that are set for this host stay."`
}

func (s *Server) registerSettings(api huma.API) {
	huma.Register(api, operation("GET", "/api/settings", "get-settings", "How upstream is reached, and how much is kept",
		"Settings of the start (flags, environment, settings file) and those that were made here, each with where it comes from."), s.getSettings)
	huma.Register(api, operation("PATCH", "/api/settings", "change-settings", "Change how upstream is reached, or how much is kept",
		"What is set holds at once, for new connections, and is kept. A lower limit deletes what is beyond it, for good. What the start set cannot be changed here."), s.changeSettings)
}

func (s *Server) getSettings(context.Context, *struct{}) (*answer[Settings], error) {
	return answerWith(describeSettings(s.cfg.Settings), nil)
}

type settingsInput struct{ Body SettingsChange }

func (s *Server) changeSettings(_ context.Context, in *settingsInput) (*answer[Settings], error) {
	start, origin := s.cfg.Settings.Start()
	if in.Body.UpstreamProxy != nil && start.UpstreamProxy != "" {
		return nil, problem(http.StatusConflict, "The upstream proxy was set at the start, by %s. Change it there, and start Millpond again.", origin["upstream_proxy"])
	}
	for _, limit := range in.Body.limits() {
		if limit.change != nil && *limit.of(&start) != "" {
			return nil, problem(http.StatusConflict, "%s was set at the start, by %s. Change it there, and start Millpond again.", limit.name, origin[limit.name])
		}
	}
	err := s.cfg.Settings.Change(in.Body.apply)
	var invalid *settings.InvalidError
	var missing *Problem
	switch {
	case errors.As(err, &missing):
		return nil, missing
	case errors.As(err, &invalid):
		return nil, problem(http.StatusUnprocessableEntity, "That cannot be set: %v.", invalid)
	case err != nil:
		return nil, s.failed("keep the settings", err)
	}
	return answerWith(describeSettings(s.cfg.Settings), nil)
}

// limitChange is a limit, and what it is to be; nil for what it is.
type limitChange struct {
	name   string
	change *string
	of     func(*settings.Out) *string
}

func (c *SettingsChange) limits() []limitChange {
	return []limitChange{
		{"max_bytes", c.MaxBytes, func(o *settings.Out) *string { return &o.MaxBytes }},
		{"max_age", c.MaxAge, func(o *settings.Out) *string { return &o.MaxAge }},
		{"max_sessions", c.MaxSessions, func(o *settings.Out) *string { return &o.MaxSessions }},
	}
}

// apply makes the change on what the dashboard has set.
func (c *SettingsChange) apply(o *settings.Out) error {
	if c.UpstreamProxy != nil {
		o.UpstreamProxy = *c.UpstreamProxy
	}
	for _, limit := range c.limits() {
		if limit.change != nil {
			*limit.of(o) = *limit.change
		}
	}
	for _, list := range []struct {
		change []string
		of     *[]string
	}{{c.NoProxy, &o.NoProxy}, {c.Passthrough, &o.Passthrough}, {c.InsecureHosts, &o.InsecureHosts}} {
		if list.change != nil {
			*list.of = list.change
		}
	}
	if c.MinTLS != nil {
		o.MinTLS = c.MinTLS
	}
	if c.ClientCerts == nil {
		return nil
	}
	kept := make(map[string]string)
	for _, cert := range o.ClientCerts {
		kept[cert.Host] = cert.PEM
	}
	o.ClientCerts = nil
	for _, cert := range c.ClientCerts {
		if cert.PEM == "" {
			if cert.PEM = kept[cert.Host]; cert.PEM == "" {
				return problem(http.StatusUnprocessableEntity, "No certificate is set for %s. Send one as pem, with its private key.", cert.Host)
			}
		}
		o.ClientCerts = append(o.ClientCerts, settings.ClientCert{Host: cert.Host, PEM: cert.PEM})
	}
	return nil
}

// describeSettings describes the settings.
func describeSettings(live *settings.Live) Settings {
	start, origin := live.Start()
	own := live.Own()
	hosts := func(name string, ofStart, ofOwn []string) []HostSetting {
		all := []HostSetting{}
		for _, h := range ofStart {
			all = append(all, HostSetting{h, origin[name]})
		}
		for _, h := range ofOwn {
			all = append(all, HostSetting{h, fromDashboard})
		}
		return all
	}
	limit := func(name, ofStart, ofOwn, otherwise string) LimitSetting {
		l := LimitSetting{otherwise, "default"}
		if ofStart != "" {
			l = LimitSetting{ofStart, origin[name]}
		} else if ofOwn != "" {
			l = LimitSetting{ofOwn, fromDashboard}
		}
		return l
	}
	out := Settings{
		NoProxy:       hosts("no_proxy", start.NoProxy, own.NoProxy),
		Passthrough:   hosts("passthrough", start.Passthrough, own.Passthrough),
		InsecureHosts: hosts("insecure_hosts", start.InsecureHosts, own.InsecureHosts),
		MinTLS:        []MinTLSSetting{}, ClientCerts: []ClientCertSetting{},
		MaxBytes: limit("max_bytes", start.MaxBytes, own.MaxBytes, settings.DefaultMaxBytes),
		MaxAge:   limit("max_age", start.MaxAge, own.MaxAge, noLimit), MaxSessions: limit("max_sessions", start.MaxSessions, own.MaxSessions, noLimit),
	}
	for _, part := range []struct {
		settings.Out
		from func(name string) string
	}{{start, func(name string) string { return origin[name] }}, {own, func(string) string { return fromDashboard }}} {
		if proxy, err := settings.ParseUpstreamProxy(part.UpstreamProxy, nil); part.UpstreamProxy != "" && err == nil && out.UpstreamProxy == nil {
			out.UpstreamProxy = &UpstreamProxySetting{URL: proxy.Redacted(), HasPassword: proxy.HasPassword(), From: part.from("upstream_proxy")}
		}
		for _, m := range part.MinTLS {
			out.MinTLS = append(out.MinTLS, MinTLSSetting{m, part.from("min_tls")})
		}
		for _, c := range part.ClientCerts {
			shown := ClientCertSetting{HostSetting: HostSetting{c.Host, part.from("client_certs")}}
			if leaf, err := c.Leaf(); err != nil {
				shown.Problem = err.Error()
			} else {
				shown.Subject, shown.NotAfter = leaf.Subject.String(), &leaf.NotAfter
			}
			out.ClientCerts = append(out.ClientCerts, shown)
		}
	}
	return out
}
