package proxy

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	martian "github.com/google/martian/v3"

	"millpond/settings"
	"millpond/storage"
)

// Config says what a Proxy is made of. Store and CA are needed; the zero value of every other field is usable.
type Config struct {
	Store *storage.Store
	CA    *CA

	Auth        *Credentials // what clients of the proxy must show; nil: nothing. The set-up page and listeners in reverse mode want none
	ClientTLS   bool         // clients may speak TLS to the proxy itself
	AllowPublic bool         // admit clients whose address is one of the open internet's

	// Rules returns what holds of the ways out; it may change with each call. Nil: none.
	Rules func() *settings.Rules

	InsecureUpstream bool           // accept any upstream certificate, and say so on the session
	UpstreamRoots    *x509.CertPool // nil: the system's

	// RequestModifier and ResponseModifier see every exchange, before capture does. Nil: none.
	RequestModifier  martian.RequestModifier
	ResponseModifier martian.ResponseModifier

	// Own reports whether an address is one of this process's own listeners (the dashboard's included), so that loops are refused.
	// The proxy's own listeners are known without it.
	Own func(netip.AddrPort) bool

	// Setup answers requests that are meant for the proxy itself (origin-form, or to millpond.internal). Nil: a short text.
	Setup http.Handler

	Limits Limits
	Logger *slog.Logger
}

// Limits bound what one client can make the proxy hold. A zero field is the default named beside it.
type Limits struct {
	Head        int           // bytes of one message head, 256 KiB; trailers and all 1xx heads of a message alike
	HeadTime    time.Duration // for a client to finish a head it has begun, 1 min
	IdleTime    time.Duration // between exchanges on a client connection, 5 min
	StallTime   time.Duration // for a write that the peer does not accept, 30 min
	DialTime    time.Duration // for TCP and TLS to upstream, 30 s each
	Sniff       time.Duration // for an undecided prefix inside a CONNECT, 300 ms
	Connections int           // client connections at once, 10,000: each may hold a descriptor of its own and up to eight to upstream
}

// withDefaults returns l with its zero fields filled in.
func (l Limits) withDefaults() Limits {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	if l.Head == 0 {
		l.Head = 256 << 10
	}
	if l.Connections == 0 {
		l.Connections = 10_000
	}
	def(&l.HeadTime, time.Minute)
	def(&l.IdleTime, 5*time.Minute)
	def(&l.StallTime, 30*time.Minute)
	def(&l.DialTime, 30*time.Second)
	def(&l.Sniff, 300*time.Millisecond)
	return l
}

// Proxy is the capture proxy.
type Proxy struct {
	cfg    Config // with defaults
	log    *slog.Logger
	resume tls.ClientSessionCache // for handshakes with upstream
	places chan struct{}          // one for each client connection there may be
	closed chan struct{}          // closed by Shutdown
	mark   string                 // of this proxy among others; see hopsField

	mu        sync.Mutex
	listeners map[net.Listener]struct{}
	clients   map[*client]struct{}
	closing   bool
	serving   sync.WaitGroup // client connections

	refused refusals

	accepted     accepted
	leavesAtOnce time.Duration // but in tests, the constant
	acceptedSoon time.Duration // likewise
}

// New returns a Proxy that serves nothing yet.
func New(cfg Config) (*Proxy, error) {
	if cfg.Store == nil {
		return nil, errors.New("make proxy: no store")
	}
	if cfg.CA == nil {
		return nil, errors.New("make proxy: no certificate authority")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Limits = cfg.Limits.withDefaults()
	trusting, err := newAccepted()
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		cfg:       cfg,
		log:       cfg.Logger,
		resume:    tls.NewLRUClientSessionCache(resumeLimit),
		closed:    make(chan struct{}),
		mark:      rand.Text(),
		places:    make(chan struct{}, cfg.Limits.Connections),
		listeners: make(map[net.Listener]struct{}),
		clients:   make(map[*client]struct{}),

		accepted:     trusting,
		leavesAtOnce: leavesAtOnce,
		acceptedSoon: acceptedSoon,
	}
	return p, nil
}

// ReplaceCA puts a new authority in the place of the old one, and returns the directory where that one is kept. See CA.Regenerate.
func (p *Proxy) ReplaceCA() (kept string, err error) {
	if kept, err = p.cfg.CA.Regenerate(); err == nil {
		p.accepted.forget()
	}
	return kept, err
}

// Clients returns how many client connections there are.
func (p *Proxy) Clients() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.clients)
}

// Shutdown stops accepting, lets running exchanges end until ctx is done, then closes what is left.
// Connections between two exchanges are closed at once.
func (p *Proxy) Shutdown(ctx context.Context) error {
	p.mu.Lock()
	if !p.closing {
		p.closing = true
		close(p.closed)
	}
	for l := range p.listeners {
		l.Close()
	}
	p.mu.Unlock()

	done := make(chan struct{})
	go func() {
		p.serving.Wait()
		close(done)
	}()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		p.closeClients(false)
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			p.closeClients(true)
			<-done
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// closeClients closes the connections that are between two exchanges, or all of them.
func (p *Proxy) closeClients(all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.clients {
		if all || c.idle.Load() {
			c.close()
		}
	}
}
