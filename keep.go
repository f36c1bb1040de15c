package main

import "millpond/settings"

// keep are the flags about how much is kept.
type keep struct {
	MaxBytes    maxBytes    `env:"MILLPOND_MAX_BYTES" placeholder:"SIZE" help:"How much of the disk sessions may take, as 20GiB or 500MB; none for no limit. What is beyond goes, the oldest first, but for pinned and shared sessions. 20GiB where left out."`
	MaxAge      maxAge      `env:"MILLPOND_MAX_AGE" placeholder:"TIME" help:"How long sessions are kept after their end, as 7d or 36h. No limit where left out."`
	MaxSessions maxSessions `env:"MILLPOND_MAX_SESSIONS" placeholder:"N" help:"How many sessions are kept. No limit where left out."`
}

// set returns what the flags set.
func (k *keep) set() settings.Keep {
	return settings.Keep{MaxBytes: string(k.MaxBytes), MaxAge: string(k.MaxAge), MaxSessions: string(k.MaxSessions)}
}

// maxBytes is a size, or none.
type maxBytes string

// check implements checker.
func (m maxBytes) check() error {
	_, err := settings.ParseMaxBytes(string(m))
	return err
}

// maxAge is a time, or none.
type maxAge string

// check implements checker.
func (m maxAge) check() error {
	_, err := settings.ParseMaxAge(string(m))
	return err
}

// maxSessions is a number, or none.
type maxSessions string

// check implements checker.
func (m maxSessions) check() error {
	_, err := settings.ParseMaxSessions(string(m))
	return err
}
