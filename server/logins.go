package server

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"sync"
	"time"
)

const (
	// loginLife and loginIdle bound a login: from its beginning, and from its last use. A restart ends all.
	loginLife = 7 * 24 * time.Hour
	loginIdle = 24 * time.Hour
	// maxLogins is far beyond one person's browsers. One more ends the one that was unused for longest.
	maxLogins = 64
)

// logins are the browsers that have shown the token, each by the hash of the random id in its cookie. It holds no id that would open anything.
type logins struct {
	now func() time.Time

	mu   sync.Mutex
	byID map[[sha256.Size]byte]*login
}

// login is one of them. Its context is done when it ends.
type login struct {
	began, used time.Time
	ctx         context.Context
	end         context.CancelFunc
}

type loginKey struct{}

func newLogins(now func() time.Time) *logins {
	return &logins{now: now, byID: make(map[[sha256.Size]byte]*login)}
}

// begin returns the id of a new login.
func (l *logins) begin() string {
	id := rand.Text()
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.byID) >= maxLogins {
		var oldest [sha256.Size]byte
		used := now
		for key, each := range l.byID {
			if !each.used.After(used) {
				oldest, used = key, each.used
			}
		}
		l.drop(oldest)
	}
	ctx, end := context.WithCancel(context.Background())
	l.byID[sha256.Sum256([]byte(id))] = &login{now, now, ctx, end}
	return id
}

// use returns the login of an id, which then was used now; nil where there is none. It looks up a hash, so its time tells nothing of the ids there are.
func (l *logins) use(id string) *login {
	key := sha256.Sum256([]byte(id))
	l.mu.Lock()
	defer l.mu.Unlock()
	each := l.byID[key]
	if each == nil {
		return nil
	}
	if !each.touch(l.now()) {
		l.drop(key)
		return nil
	}
	return each
}

// keep notes that a login is used now, as by an open live connection, and reports whether it holds.
func (l *logins) keep(each *login) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return each.ctx.Err() == nil && each.touch(l.now())
}

// end ends a login; what is none is no error.
func (l *logins) end(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(sha256.Sum256([]byte(id)))
}

// drop ends a login. l.mu is held.
func (l *logins) drop(key [sha256.Size]byte) {
	if each := l.byID[key]; each != nil {
		each.end()
		delete(l.byID, key)
	}
}

// touch notes a use, unless the time of the login is over. The lock of its logins is held.
func (l *login) touch(now time.Time) bool {
	if now.Sub(l.began) >= loginLife || now.Sub(l.used) >= loginIdle {
		return false
	}
	l.used = now
	return true
}
