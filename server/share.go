package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"millpond/storage"
)

// maxShares bounds the shares that live at once: each is some 200 bytes of memory.
const maxShares = 10_000

// shareRecord is what is kept of a share: never the token, only its hash. The token has 256 random bits, so a plain hash cannot be searched.
type shareRecord struct {
	ID      string    `json:"id"`
	Session uint64    `json:"session"`
	Hash    []byte    `json:"hash"` // SHA-256 of the token
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
}

func (r *shareRecord) share() Share {
	return Share{ID: r.ID, Session: r.Session, Created: r.Created, Expires: r.Expires}
}

// liveShare is a share in memory. ctx ends when it is revoked.
type liveShare struct {
	shareRecord
	ctx  context.Context
	kill context.CancelFunc
}

func newLiveShare(r shareRecord) *liveShare {
	share := &liveShare{shareRecord: r}
	share.ctx, share.kill = context.WithCancel(context.Background())
	return share
}

// shares holds the shares that are not dead.
type shares struct {
	store *storage.Store
	now   func() time.Time

	mu   sync.Mutex
	byID map[string]*liveShare
}

func loadShares(store *storage.Store, now func() time.Time, log *slog.Logger) (*shares, error) {
	s := &shares{store: store, now: now, byID: map[string]*liveShare{}}
	records, err := store.Shares()
	if err != nil {
		return nil, fmt.Errorf("load the shares: %w", err)
	}
	for id, raw := range records {
		var record shareRecord
		err := json.Unmarshal(raw, &record)
		if err == nil && record.ID != id {
			err = fmt.Errorf("it says that it is share %q", record.ID)
		}
		if err != nil {
			log.Error("leave out a share that cannot be read", "id", id, "err", err)
			continue
		}
		s.byID[id] = newLiveShare(record)
	}
	return s, s.dropExpired()
}

// create makes a share and returns it with its token, which is kept nowhere.
func (s *shares) create(session uint64, life time.Duration) (Share, string, error) {
	if err := s.dropExpired(); err != nil {
		return Share{}, "", err
	}
	token := rand.Text() + rand.Text() // 52 base32 characters: 260 bits
	hash := sha256.Sum256([]byte(token))
	id := make([]byte, 8)
	rand.Read(id)
	now := s.now().UTC()
	share := newLiveShare(shareRecord{ID: hex.EncodeToString(id), Session: session, Hash: hash[:], Created: now, Expires: now.Add(life)})
	raw, err := json.Marshal(share.shareRecord)
	if err != nil {
		return Share{}, "", fmt.Errorf("encode the share: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.byID) >= maxShares {
		return Share{}, "", errTooManyShares
	}
	if err := s.store.PutShare(share.ID, raw); err != nil {
		return Share{}, "", fmt.Errorf("keep the share: %w", err)
	}
	s.byID[share.ID] = share
	return share.share(), token, nil
}

var errTooManyShares = fmt.Errorf("there are %d shares already", maxShares)

// find returns the share that the token opens. All that do not are alike.
func (s *shares) find(id, token string) (*liveShare, bool) {
	s.mu.Lock()
	share := s.byID[id]
	s.mu.Unlock()
	if share == nil || token == "" || !s.now().Before(share.Expires) {
		return nil, false
	}
	got := sha256.Sum256([]byte(token))
	return share, subtle.ConstantTimeCompare(got[:], share.Hash) == 1
}

// list returns the shares that are not dead, oldest first.
func (s *shares) list() []Share {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []Share{}
	for _, share := range s.byID {
		if s.now().Before(share.Expires) {
			list = append(list, share.share())
		}
	}
	slices.SortFunc(list, func(a, b Share) int { return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID)) })
	return list
}

// held returns the sessions that shares which are not dead show.
func (s *shares) held() map[uint64]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := make(map[uint64]bool, len(s.byID))
	for _, share := range s.byID {
		if s.now().Before(share.Expires) {
			held[share.Session] = true
		}
	}
	return held
}

// revoke makes a share dead, also for a page that is open, and forgets it. It reports whether there was one.
func (s *shares) revoke(id string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	share, ok := s.byID[id]
	if !ok {
		return false, nil
	}
	if err := s.store.DeleteShare(id); err != nil {
		return false, fmt.Errorf("forget the share: %w", err)
	}
	delete(s.byID, id)
	share.kill()
	return true, nil
}

func (s *shares) dropExpired() error {
	s.mu.Lock()
	var expired []string
	for id, share := range s.byID {
		if !s.now().Before(share.Expires) {
			expired = append(expired, id)
		}
	}
	s.mu.Unlock()
	for _, id := range expired {
		if _, err := s.revoke(id); err != nil {
			return err
		}
	}
	return nil
}
