// Package storagetest puts a disk under a Store that stalls, fills up and fails, and holds the suite that each file layer meets.
package storagetest

import (
	"io/fs"
	"sync"
	"syscall"
	"time"

	"millpond/storage"
)

// Op is a set of kinds of file operations.
type Op uint8

// The kinds of operations that a Disk can hold up or fail.
const (
	Read   Op = 1 << iota // ReadAt
	Write                 // Write, WriteAt, Truncate
	Sync                  // Sync, SyncDir
	Create                // OpenFile with O_CREATE, Mkdir
	Rename
	Remove
)

// Disk is a Files whose operations can be stalled, delayed and failed. It begins healthy. Its faults hold for files opened before, too.
type Disk struct {
	storage.Files

	mu     sync.Mutex
	faults map[*fault]struct{}
	delay  time.Duration
	left   int64 // bytes that still fit; negative: as many as the real disk takes
	space  *[2]uint64
	tried  map[Op]int
	done   map[Op]int
	waits  chan Op
}

// fault is one rule: operations of its kinds are counted, and the nth (every one where nth is 0) waits for stall and then fails with err.
type fault struct {
	ops   Op
	nth   int
	seen  int
	err   error
	stall chan struct{}
	end   func() // closes stall, once
}

// NewDisk puts a Disk over the files.
func NewDisk(files storage.Files) *Disk {
	return &Disk{Files: files, faults: map[*fault]struct{}{}, left: -1, tried: map[Op]int{}, done: map[Op]int{}, waits: make(chan Op, 1)}
}

// Stall holds up operations of the kinds until release is called, which may be done twice.
func (d *Disk) Stall(ops Op) (release func()) {
	f := &fault{ops: ops, stall: make(chan struct{})}
	f.end = sync.OnceFunc(func() { close(f.stall) })
	d.add(f)
	return func() {
		d.mu.Lock()
		delete(d.faults, f)
		d.mu.Unlock()
		f.end()
	}
}

// Stalled has a value when an operation has begun to wait in a Stall: its kind. Values that nobody takes are dropped.
func (d *Disk) Stalled() <-chan Op { return d.waits }

// Delay makes each write and sync take so much longer; 0 ends it.
func (d *Disk) Delay(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.delay = by
}

// Fail makes all operations of the kinds fail with err, such as syscall.EIO.
func (d *Disk) Fail(ops Op, err error) { d.add(&fault{ops: ops, err: err}) }

// FailNth makes the nth operation from now on, of those of the kinds, fail with err; 1 is the next.
func (d *Disk) FailNth(ops Op, nth int, err error) { d.add(&fault{ops: ops, nth: nth, err: err}) }

// Fill leaves room for n more bytes. A write beyond writes what fits, and returns syscall.ENOSPC; so does creating where n is 0.
// Overwriting counts like appending, and removing gives nothing back: only Heal does.
func (d *Disk) Fill(n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left = n
}

// SetSpace makes Space return these figures.
func (d *Disk) SetSpace(free, total uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.space = &[2]uint64{free, total}
}

// Heal ends every fault, and releases what is stalled.
func (d *Disk) Heal() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for f := range d.faults {
		if f.stall != nil {
			f.end()
		}
	}
	d.faults, d.delay, d.left, d.space = map[*fault]struct{}{}, 0, -1, nil
}

// Count returns how many operations of the kinds have passed without an error.
func (d *Disk) Count(ops Op) int { return d.sum(d.done, ops) }

// Tried returns how many operations of the kinds were begun.
func (d *Disk) Tried(ops Op) int { return d.sum(d.tried, ops) }

func (d *Disk) sum(counts map[Op]int, ops Op) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for op, count := range counts {
		if op&ops != 0 {
			n += count
		}
	}
	return n
}

func (d *Disk) add(f *fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults[f] = struct{}{}
}

// before waits and fails as the faults say.
func (d *Disk) before(op Op) error {
	d.mu.Lock()
	d.tried[op]++
	var stalls []chan struct{}
	var err error
	for f := range d.faults {
		if f.ops&op == 0 {
			continue
		}
		if f.seen++; f.nth != 0 && f.seen != f.nth {
			continue
		}
		if f.stall != nil {
			stalls = append(stalls, f.stall)
		}
		if f.err != nil {
			err = f.err
		}
	}
	if op == Create && d.left == 0 && err == nil {
		err = syscall.ENOSPC
	}
	delay := d.delay
	d.mu.Unlock()

	if delay > 0 && op&(Write|Sync) != 0 {
		time.Sleep(delay)
	}
	for _, stall := range stalls {
		select {
		case d.waits <- op:
		default:
		}
		<-stall
	}
	return err
}

func (d *Disk) after(op Op, err error) {
	if err != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.done[op]++
}

// do runs an operation under the faults.
func (d *Disk) do(op Op, name, path string, run func() error) error {
	if err := d.before(op); err != nil {
		return &fs.PathError{Op: name, Path: path, Err: err}
	}
	err := run()
	d.after(op, err)
	return err
}

// room takes up to n bytes of what is left.
func (d *Disk) room(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left < 0 {
		return n
	}
	n = int(min(int64(n), d.left))
	d.left -= int64(n)
	return n
}
