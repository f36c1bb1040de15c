package storage

import "context"

// brim is what a recording holds at most while the disk works, whatever its sender does: its share, and the buffer in hand that a relay which
// honours Full adds to that.
const brim = ownMemory + calmShare + LargeBufferSize

// Brim blocks while the recording holds more than a relay that honours Full lets it, for a relay that cannot hold back just this sender at once, as over
// HTTP/2, where what was granted still comes. It does so before a disk that works, and wherever the memory that all share is used up, since what came
// then would be cut. Before a disk that stalls it does not, and no longer than ctx.
func (w *BodyWriter) Brim(ctx context.Context) {
	for {
		room, stalls := w.rec.share.brimming()
		if room == nil {
			return
		}
		select {
		case <-room:
		case <-stalls:
		case <-ctx.Done():
			return
		}
	}
}

// brimming returns nil unless the recording is to take no more. Else one of the channels is closed when that may have changed.
func (s *share) brimming() (room, stalls <-chan struct{}) {
	room = s.full()
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case room == nil:
		return nil, nil
	case b.exhausted():
		return room, nil
	case s.held <= brim || !b.calm:
		return nil, nil
	}
	if b.stalls == nil {
		b.stalls = make(chan struct{})
	}
	return room, b.stalls
}
