package storage

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"millpond/migrations"
)

func TestSecondHolderIsToldWhoIsFirst(t *testing.T) {
	dir := t.TempDir()
	first, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.tell("http://127.0.0.1:8081/ and a long tail that is to go"); err != nil {
		t.Fatal(err)
	}
	if err := first.tell("http://127.0.0.1:8081/"); err != nil {
		t.Fatal(err)
	}

	_, err = lockDir(dir)
	if !errors.Is(err, ErrLocked) {
		t.Fatalf("second: %v, want ErrLocked", err)
	}
	host, _ := os.Hostname()
	want := fmt.Sprintf("is held by process %d on %s, dashboard http://127.0.0.1:8081/", os.Getpid(), host)
	if !strings.HasSuffix(err.Error(), want) || !strings.Contains(err.Error(), dir) {
		t.Errorf("error is %q, want %s …%s", err, dir, want)
	}

	if err := first.release(); err != nil {
		t.Fatal(err)
	}
	second, err := lockDir(dir)
	if err != nil {
		t.Fatalf("after the first let go: %v", err)
	}
	second.release()
}

func TestLockOfAKilledProcessHoldsNobodyUp(t *testing.T) {
	const dirVariable = "MILLPOND_TEST_LOCK"
	if dir := os.Getenv(dirVariable); dir != "" { // the process to kill
		if _, err := lockDir(dir); err != nil {
			t.Fatal(err)
		}
		fmt.Println("locked")
		time.Sleep(time.Minute)
		return
	}

	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), dirVariable+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "locked\n" {
		t.Fatalf("the other process said %q, %v", line, err)
	}

	_, err = lockDir(dir)
	if want := fmt.Sprintf("process %d ", cmd.Process.Pid); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), want) {
		t.Errorf("error is %v, want %s", err, want)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	l, err := lockDir(dir)
	if err != nil {
		t.Fatalf("after SIGKILL: %v", err)
	}
	l.release()
}

func TestLockNeedsTheDirectory(t *testing.T) {
	if _, err := lockDir(t.TempDir() + "/none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error is %v, want ErrNotExist", err)
	}
}

// TestOpenStoreLeavesOthersDirectoriesAlone opens a directory that --data names by mistake.
func TestOpenStoreLeavesOthersDirectoriesAlone(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/letters.txt", []byte("dear"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenStore(Config{Dir: dir}); !errors.Is(err, migrations.ErrNotData) {
		t.Errorf("error is %v, want ErrNotData", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left %v, %v", entries, err)
	}
}
