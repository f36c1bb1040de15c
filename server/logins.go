package server

import (
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
	byID map[[sha256.Size]byte]login
}

type login struct{ began, used time.Time }

func newLogins(now func() time.Time) *logins {
	return &logins{now: now, byID: make(map[[sha256.Size]byte]login)}
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
		delete(l.byID, oldest)
	}
	l.byID[sha256.Sum256([]byte(id))] = login{now, now}
	return id
}

// use reports whether a login holds, which then was used now. It looks up a hash, so its time tells nothing of the ids there are.
func (l *logins) use(id string) bool {
	key := sha256.Sum256([]byte(id))
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	each, ok := l.byID[key]
	if !ok {
		return false
	}
	if now.Sub(each.began) >= loginLife || now.Sub(each.used) >= loginIdle {
		delete(l.byID, key)
		return false
	}
	each.used = now
	l.byID[key] = each
	return true
}

// end ends a login; what is none is no error.
func (l *logins) end(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.byID, sha256.Sum256([]byte(id)))
}
