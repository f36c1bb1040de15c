package settings

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"millpond/storage"
)

// Keep is what is set about how much is kept, as people write it: "20GiB", "7d", "1000000", or "none" for no limit. Empty: nothing is set.
type Keep struct {
	MaxBytes    string `json:"max_bytes,omitempty"`
	MaxAge      string `json:"max_age,omitempty"`
	MaxSessions string `json:"max_sessions,omitempty"`
}

// DefaultMaxBytes is MaxBytes where nothing sets it. There is no other limit then.
const DefaultMaxBytes = "20GiB"

// minBytes is the least limit of bytes: the log goes by segments of 16 MiB, and the newest 16 MiB stay whatever the limit.
const minBytes = 100 << 20

var units = map[string]uint64{
	"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40, "PIB": 1 << 50,
	"KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15,
}

// unlimited reports whether the text says that there is no limit.
func unlimited(text string) bool { return strings.EqualFold(text, "none") }

// ParseMaxBytes reads a size, as 20GiB, 500MB or a number of bytes. 0 is no limit.
func ParseMaxBytes(text string) (uint64, error) {
	if unlimited(text) {
		return 0, nil
	}
	digits := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
	number, err := strconv.ParseFloat(digits, 64)
	unit, known := units[strings.ToUpper(strings.TrimSpace(text[len(digits):]))]
	bytes := number * float64(unit)
	switch {
	case err != nil || !known || strings.Trim(digits, "0123456789.") != "":
		return 0, fmt.Errorf("%q is not a size: want one as 20GiB or 500MB, or none for no limit", text)
	case bytes < minBytes:
		return 0, fmt.Errorf("%q is too little to keep sessions in: 100MiB is the least; write none for no limit", text)
	case bytes >= 1<<60:
		return 0, fmt.Errorf("%q is more than a disk holds: say none for no limit", text)
	}
	return uint64(bytes), nil
}

// ParseMaxAge reads a time, as 7d, 2w, 36h or 1d12h. 0 is no limit.
func ParseMaxAge(text string) (time.Duration, error) {
	if unlimited(text) {
		return 0, nil
	}
	wrong := fmt.Errorf("%q is not a time: want one as 7d, 2w, 36h or 90m, or none for no limit", text)
	age, rest := time.Duration(0), text
	for _, unit := range []struct {
		name string
		is   time.Duration
	}{{"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}} {
		number, after, ok := strings.Cut(rest, unit.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			return 0, wrong
		}
		age, rest = age+time.Duration(n)*unit.is, after
	}
	if rest != "" {
		d, err := time.ParseDuration(rest)
		if err != nil || d < 0 {
			return 0, wrong
		}
		age += d
	}
	if age < time.Minute || age > 100*365*24*time.Hour {
		return 0, fmt.Errorf("%q is not between a minute and a hundred years; write none for no limit", text)
	}
	return age, nil
}

// ParseMaxSessions reads a number of sessions. 0 is no limit.
func ParseMaxSessions(text string) (uint64, error) {
	if unlimited(text) {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 48)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number of sessions: want one as 100000, or none for no limit", text)
	}
	if n == 0 {
		return 0, fmt.Errorf("%q would keep no session: write none for no limit", text)
	}
	return n, nil
}

// zeroIsNone makes none of 0, which was taken for it once.
func (k *Keep) zeroIsNone() {
	for _, limit := range []*string{&k.MaxBytes, &k.MaxAge, &k.MaxSessions} {
		if *limit == "0" {
			*limit = "none"
		}
	}
}

// limits reads what is set.
func (k Keep) limits() (l storage.Limits, err error) {
	if k.MaxBytes == "" {
		k.MaxBytes = DefaultMaxBytes
	}
	l.Bytes, err = ParseMaxBytes(k.MaxBytes)
	if k.MaxAge != "" && err == nil {
		l.Age, err = ParseMaxAge(k.MaxAge)
	}
	if k.MaxSessions != "" && err == nil {
		l.Sessions, err = ParseMaxSessions(k.MaxSessions)
	}
	return l, err
}

// under fills what is not set in k with what is set in other.
func (k Keep) under(other Keep) Keep {
	for _, each := range []struct {
		to   *string
		from string
	}{{&k.MaxBytes, other.MaxBytes}, {&k.MaxAge, other.MaxAge}, {&k.MaxSessions, other.MaxSessions}} {
		if *each.to == "" {
			*each.to = each.from
		}
	}
	return k
}

// Limits returns how much is kept.
func (r *Rules) Limits() storage.Limits { return r.limits }
