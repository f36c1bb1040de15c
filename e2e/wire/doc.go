// Package wire tests what passes through the program, case by case: what the client got, what the origin got, and what the session says.
// The table of its cases is the source of docs/wire.md.
package wire
