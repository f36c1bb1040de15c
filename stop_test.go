package main

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Ctrl+C with a download open says at once what is waited for, and how to go without; a second one stops, and the session is marked and kept.
func TestSecondInterruptStopsAtOnce(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	cmd := command("--proxy", "127.0.0.1:0", "--dashboard", "127.0.0.1:0", "--data", data)
	logs, into := io.Pipe()
	lines := make(chan string, 100)
	go func() {
		for scan := bufio.NewScanner(logs); scan.Scan(); {
			lines <- scan.Text()
		}
	}()
	p := startLogging(t, cmd, into)
	origin := newOrigin(t)
	download, err := p.client.Get(origin.url)
	if err != nil {
		t.Fatal(err)
	}
	defer download.Body.Close()
	if _, err := io.ReadFull(download.Body, make([]byte, origin.sent)); err != nil {
		t.Fatal(err)
	}
	interrupt := func() time.Time {
		if err := p.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		return time.Now()
	}
	interrupt()
	for told := false; !told; {
		select {
		case line := <-lines:
			told = strings.Contains(line, "waiting up to 5s for 1 open sessions; press Ctrl+C again to stop now")
		case <-time.After(stopTime):
			t.Fatal("it does not say what it waits for")
		}
	}
	start := interrupt()
	if err := p.Wait(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if took := time.Since(start); took >= stopTime-time.Second { // what the wait without the second would have taken is left
		t.Errorf("it took %v to stop", took)
	}
	into.Close()
	again := serve(t, "--data", data)
	var list struct {
		Sessions []struct {
			State   string
			Durable bool
		}
	}
	again.call(t, "/api/sessions", &list)
	if len(list.Sessions) != 1 || list.Sessions[0].State != "interrupted" || !list.Sessions[0].Durable {
		t.Errorf("got %+v", list)
	}
}
