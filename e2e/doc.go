// Package e2e tests the whole program: as a process of its own, with real clients and origins around it.
package e2e
