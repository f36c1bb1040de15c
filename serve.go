package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/sync/errgroup"

	"millpond/proxy"
	"millpond/server"
	"millpond/storage"
)

// stopTime bounds a clean stop: what is in flight may end within it, and is marked interrupted otherwise. Containers are killed after 10 s.
const stopTime = 5 * time.Second

// compactTime bounds what a stop takes longer to make the index smaller; `millpond compact` has all the time it needs.
const compactTime = 3 * time.Second

type serveCommand struct {
	wayIn  `embed:""`
	wayOut `embed:""`
	keep   `embed:""`

	Dashboard        listenAddr  `env:"MILLPOND_DASHBOARD" default:"127.0.0.1:8081" placeholder:"ADDR" help:"The dashboard's listener, HOST:PORT. Port 0 picks one. ${default} where left out."`
	Token            token       `env:"MILLPOND_TOKEN" placeholder:"T" help:"The dashboard's token. Random at each start where left out."`
	AllowHost        []allowHost `env:"MILLPOND_ALLOW_HOST" placeholder:"NAME" help:"A further name, NAME or NAME:PORT, by which browsers reach the dashboard, as through a reverse proxy."`
	InsecureUpstream bool        `env:"MILLPOND_INSECURE_UPSTREAM" help:"Accept any upstream certificate, and say so on the session."`
	UpstreamCA       rootsFile   `env:"MILLPOND_UPSTREAM_CA" name:"upstream-ca" type:"path" placeholder:"FILE" help:"Further roots for upstream, PEM."`
	SlowDisk         slowDisk    `env:"MILLPOND_SLOW_DISK" default:"wait" help:"When the disk is slower than the traffic: wait slows the transfer and keeps all of it, cut ends the capture of that body."`
	LogFormat        logFormat   `env:"MILLPOND_LOG_FORMAT" default:"text" help:"Form of the log on standard error: text or json."`
	Profiles         bool        `hidden:"" help:"Serve net/http/pprof on the dashboard, with the token. On a loopback listener only."`

	origins origins
}

// AfterApply judges what was set.
func (c *serveCommand) AfterApply(ctx *kong.Context) error {
	c.origins = findOrigins(ctx, c.file)
	return c.origins.check(ctx.Flags())
}

// Run captures until SIGINT or SIGTERM.
func (c *serveCommand) Run(line *commandLine, s *streams) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := c.logger(s.err)

	store, err := storage.OpenStore(storage.Config{Dir: string(line.Data), SlowDisk: c.SlowDisk.kind(), Logger: log})
	if err != nil {
		return line.Data.unwritable(err)
	}
	hurry, hurryUp := context.WithCancel(context.Background())
	defer hurryUp()
	err = c.serve(ctx, stopping{stop, hurry, hurryUp}, string(line.Data), store, log, s.out)
	if err != nil {
		hurryUp()
	}
	compacting, cancel := context.WithTimeout(hurry, compactTime)
	defer cancel()
	if closed := store.CloseCompacting(compacting); closed != nil {
		err = errors.Join(err, fmt.Errorf("close the data directory: %w", closed))
	}
	return err
}

func (c *serveCommand) logger(w io.Writer) *slog.Logger {
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, nil))
	}
	return slog.New(slog.NewTextHandler(w, nil))
}

// serve runs both listeners until ctx is done, and then stops them. A second signal ends the wait for what is open, which is marked and kept all the same.
func (c *serveCommand) serve(ctx context.Context, stop stopping, data string, store *storage.Store, log *slog.Logger, out io.Writer) error {
	roots, err := c.UpstreamCA.pool()
	if err != nil {
		return c.origins.wrong("upstream-ca", 0, err)
	}
	authority, err := filepath.Abs(filepath.Join(data, "ca"))
	if err != nil {
		return fmt.Errorf("find the CA's directory: %w", err)
	}
	ca, err := proxy.LoadCA(authority)
	if err != nil {
		return dataDir(data).unwritable(err)
	}
	live, err := c.loadSettings(store)
	if err != nil {
		return err
	}
	auth, err := c.credentials(c.origins)
	if err != nil {
		return err
	}
	clients, err := c.listen(c.origins)
	if err != nil {
		return err
	}
	defer clients.close()
	dashboardListener, err := listen(c.Dashboard)
	if err != nil {
		return c.origins.wrong("dashboard", 0, err)
	}
	defer dashboardListener.Close()

	caFile := filepath.Join(authority, "cert.pem")
	token := string(c.Token)
	if token == "" {
		token = rand.Text()
	}
	dashboardAddr := addrPort(dashboardListener)
	if c.Profiles && !dashboardAddr.Addr().IsLoopback() {
		return c.origins.wrong("profiles", 0, errors.New("only a loopback listener serves profiles: leave it out, or set --dashboard"))
	}
	relay, err := proxy.New(proxy.Config{
		Store: store, CA: ca, Auth: auth, ClientTLS: c.ProxyTLS, AllowPublic: c.AllowPublicClients,
		Rules: live.Rules, InsecureUpstream: c.InsecureUpstream, UpstreamRoots: roots,
		Own: proxy.Owns(dashboardListener.Addr()), Logger: log,
		Setup: server.Setup(server.SetupConfig{CA: ca.Certificate, Proxy: addrPort(clients.proxy[0]), Auth: auth != nil}),
	})
	if err != nil {
		return err
	}
	control := rand.Text()
	dashboard, err := server.New(server.Config{
		Control: control,
		Store:   store, CA: ca.Certificate, ReplaceCA: relay.ReplaceCA, CAFile: caFile, Token: token, AllowHosts: allowed(c.AllowHost),
		Proxies: clients.proxyAddrs(), ProxyAuth: auth != nil, Dashboard: dashboardAddr,
		Settings: live, Version: version, Profiles: c.Profiles, Logger: log,
	})
	if err != nil {
		return err
	}

	if err := store.ServedAt("http://" + reachable(dashboardAddr) + "/"); err != nil {
		return err
	}
	if err := store.ControlledAt(reachable(dashboardAddr), control); err != nil {
		log.Warn("millpond backup cannot reach this process", "error", err) // as on a full disk, which is no reason not to serve
	}
	fmt.Fprintf(out, "dashboard http://%s/#token=%s\n", reachable(dashboardAddr), token)
	for _, l := range clients.proxy {
		fmt.Fprintf(out, "proxy %s\n", l.Addr())
	}
	for _, l := range clients.reverse {
		fmt.Fprintf(out, "reverse %s to %s\n", l.Addr(), l.to)
	}
	fmt.Fprintf(out, "ca %s\n", caFile)

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { keepMemory(ctx, relay.Clients); return nil })
	for _, l := range clients.proxy {
		group.Go(func() error { return relay.Serve(l) })
	}
	for _, l := range clients.reverse {
		group.Go(func() error { return relay.ServeReverse(l.Listener, l.to) })
	}
	group.Go(func() error { return dashboard.Serve(dashboardListener) })
	group.Go(func() error {
		<-ctx.Done()
		stop.watch(log)
		deadline, cancel := context.WithTimeout(stop.hurry, stopTime)
		defer cancel()
		if open := store.Status().Open; open > 0 {
			log.Info(fmt.Sprintf("waiting up to %v for %d open sessions; press Ctrl+C again to stop now", stopTime, open), "open", open)
		}
		var all errgroup.Group
		all.Go(func() error { return tolerateDeadline(relay.Shutdown(deadline)) })
		all.Go(func() error { return tolerateDeadline(dashboard.Shutdown(deadline)) })
		return all.Wait()
	})
	return group.Wait()
}

// stopping is a stop: a signal begins it, a second one makes it quick, and a third one ends the program as it is.
type stopping struct {
	first   context.CancelFunc // ends the watch for the signal that begins it
	hurry   context.Context    // done with the second
	hurryUp context.CancelFunc
}

// watch has the next signal make the stop quick, until the program's end.
func (s stopping) watch(log *slog.Logger) {
	again := make(chan os.Signal, 1)
	signal.Notify(again, os.Interrupt, syscall.SIGTERM) // before the other watch ends, so that none falls in between
	s.first()
	go func() {
		<-again
		signal.Stop(again)
		log.Info("stopping now")
		s.hurryUp()
	}()
}

// tolerateDeadline drops the error of a stop that closed what did not end in time: that is a clean stop too.
func tolerateDeadline(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func listen(addr listenAddr) (net.Listener, error) {
	l, err := net.Listen("tcp", string(addr))
	if err != nil {
		return nil, fmt.Errorf("%w: choose another address", err)
	}
	return l, nil
}

func addrPort(l net.Listener) netip.AddrPort {
	addr := l.Addr().(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
}

// reachable is where a browser on this machine finds a listener.
func reachable(addr netip.AddrPort) string {
	if addr.Addr().IsUnspecified() {
		return fmt.Sprintf("localhost:%d", addr.Port())
	}
	return addr.String()
}
