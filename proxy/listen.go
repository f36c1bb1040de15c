package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"syscall"
	"time"
)

// Serve accepts clients on l until Shutdown, after which it returns nil, or an error of the listener. It may run for several listeners.
func (p *Proxy) Serve(l net.Listener) error { return p.accept(l, nil) }

// accept is Serve. to is where a listener in reverse mode leads; nil for one of the proxy's.
func (p *Proxy) accept(l net.Listener, to *Reverse) error {
	defer l.Close()
	p.mu.Lock()
	if p.closing {
		p.mu.Unlock()
		return nil
	}
	p.listeners[l] = struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.listeners, l)
		p.mu.Unlock()
	}()

	const shortest, longest = 5 * time.Millisecond, time.Second
	wait := shortest
	for {
		// At the bound, further clients wait in the system's backlog: better than a refusal, which no client retries.
		select {
		case p.places <- struct{}{}:
		case <-p.closed:
			return nil
		}
		nc, err := l.Accept()
		if err == nil {
			wait = shortest
			go p.serveClient(nc, to)
			continue
		}
		<-p.places
		switch {
		case p.isClosing():
			return nil
		case outOfResources(err):
			p.log.Warn("cannot accept a client now", "error", err, "again_in", wait)
			select {
			case <-time.After(wait):
			case <-p.closed:
				return nil
			}
			wait = min(2*wait, longest)
		default:
			return fmt.Errorf("accept clients on %s: %w", l.Addr(), err)
		}
	}
}

// outOfResources reports whether accepting can succeed later.
func outOfResources(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (p *Proxy) isClosing() bool {
	select {
	case <-p.closed:
		return true
	default:
		return false
	}
}

// serveClient serves one accepted connection to its end, and gives back its place.
func (p *Proxy) serveClient(nc net.Conn, to *Reverse) {
	ctx, cancel := context.WithCancel(context.Background())
	c := &client{addr: nc.RemoteAddr().String(), raw: nc, cancel: cancel, reverse: to}
	p.mu.Lock()
	closing := p.closing
	if !closing {
		p.clients[c] = struct{}{}
		p.serving.Add(1)
	}
	p.mu.Unlock()
	if closing {
		c.close()
		<-p.places
		return
	}
	defer func() {
		// One client's mishap is not the others': the process lives on.
		if v := recover(); v != nil {
			p.log.Error("serving a client panicked", "client", c.addr, "panic", v, "stack", string(debug.Stack()))
		}
		c.close()
		p.mu.Lock()
		delete(p.clients, c)
		p.mu.Unlock()
		<-p.places
		p.serving.Done()
	}()
	if !p.admits(nc.RemoteAddr()) {
		p.turnAway(c.addr, "its address is public; --allow-public-clients admits such clients")
		return
	}
	p.serveWayIn(ctx, newConn(nc, c))
}
