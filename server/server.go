// Package server is the dashboard's side: the API, live views, bodies by range, shares, and the app's assets.
package server

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"millpond/settings"
	"millpond/storage"
)

// Config says what a Server is made of. Store, CA, Token and Proxies are needed.
type Config struct {
	Store *storage.Store
	CA    func() *x509.Certificate // what devices install at present
	Token string                   // opens the dashboard

	Control string // the control file's secret, which alone lets a backup be asked for; empty: nobody may

	CAFile string // the path of CA's certificate, for commands that people copy; may be empty

	// ReplaceCA puts a new authority in the place of CA's, and returns where the old one is kept. Nil: it cannot be done.
	ReplaceCA func() (kept string, err error)

	// AllowHosts are further names, "name" or "name:port", by which browsers may call the dashboard, and whose pages may call it.
	// Loopback's names, and the address that a connection came in on, are allowed without.
	AllowHosts []string

	Settings *settings.Live // how upstream is reached, and how much is kept: the store keeps to it from New on. Nil: what the store keeps

	Proxies   []netip.AddrPort // the proxy's listeners, at least one
	ProxyAuth bool             // the proxy's clients must show credentials
	Dashboard netip.AddrPort   // the dashboard's listener
	Version   string
	Profiles  bool // serve net/http/pprof, with the token
	Logger    *slog.Logger
	Now       func() time.Time // nil: time.Now
}

// Server serves the dashboard.
type Server struct {
	cfg     Config
	store   *storage.Store
	log     *slog.Logger
	now     func() time.Time
	started time.Time
	routes  *routes
	guard   *guard
	shares  *shares
	live    *hub

	deletions *deletions

	http http.Server

	decoding  chan struct{} // holds one value for each body that is being decoded
	inflating chan struct{} // and for each copy of decompressed messages that is being made
	stall     time.Duration // stallTime, but in tests of it

	replacing sync.Mutex // one replacement of the authority at a time

	ctx  context.Context // done when the server shuts down
	stop context.CancelFunc
	work sync.WaitGroup // live connections and deletions, which http.Server does not count
}

// New returns a Server that serves nothing yet.
func New(cfg Config) (*Server, error) {
	if cfg.Store == nil || cfg.CA == nil || cfg.Token == "" || len(cfg.Proxies) == 0 {
		return nil, errors.New("make the dashboard's server: Store, CA, Token and Proxies are needed")
	}
	s := &Server{cfg: cfg, store: cfg.Store, log: cfg.Logger, now: cfg.Now}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.now == nil {
		s.now = time.Now
	}
	s.started = s.now()
	s.ctx, s.stop = context.WithCancel(context.Background())
	var err error
	if s.cfg.Settings == nil {
		if s.cfg.Settings, err = settings.Load(s.store, settings.Out{}, nil); err != nil {
			return nil, err
		}
	}
	if s.shares, err = loadShares(s.store, s.now, s.log); err != nil {
		return nil, err
	}
	s.store.HoldBack(s.shares.held)
	s.store.Retain(s.cfg.Settings.Rules().Limits())
	s.decoding, s.inflating, s.stall = make(chan struct{}, maxDecoding), make(chan struct{}, maxInflating), stallTime
	s.register()
	s.guard = newGuard(cfg.Token, cfg.Control, cfg.AllowHosts, s.routes, s.shares, s.now)
	s.deletions = newDeletions(s.store, s.now)
	s.live = newHub(s.store, s.deletions, s.now)
	s.http = http.Server{
		Handler:           s.guard,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	return s, nil
}

// Serve answers on l until Shutdown or an error of the listener. It may run for several listeners.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the dashboard on %s: %w", l.Addr(), err)
	}
	return nil
}

// Shutdown ends live connections and everything that follows a growing body, lets other answers end until ctx is done, and closes what is left.
// When it returns, nothing reads the store any more, unless ctx was done before.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = fmt.Errorf("shut the dashboard down: %w", errors.Join(err, s.http.Close()))
	}
	s.work.Wait()
	s.live.running.Wait()
	return err
}
