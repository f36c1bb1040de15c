package e2e

import (
	"debug/elf"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"millpond/e2e/harness"
)

// The program is one file that needs no other: no interpreter, no shared library. Other systems' programs always load some of their system's.
func TestBinaryIsStatic(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only on Linux is a program wholly static")
	}
	path, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	file, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, part := range file.Progs {
		if part.Type == elf.PT_INTERP {
			t.Error("the program needs an interpreter")
		}
	}
	if libraries, err := file.ImportedLibraries(); err != nil || len(libraries) > 0 {
		t.Errorf("the program needs %v, %v", libraries, err)
	}
}

// A container asks the program itself whether it is well.
func TestHealthcheck(t *testing.T) {
	p := harness.Start(t, "")
	path, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	check := func() ([]byte, error) {
		cmd := exec.Command(path, "healthcheck")
		cmd.Env = append(os.Environ(), "MILLPOND_DASHBOARD="+strings.TrimPrefix(p.Dashboard, "http://"))
		return cmd.CombinedOutput()
	}
	if out, err := check(); err != nil {
		t.Errorf("healthcheck of a running program: %v: %s", err, out)
	}
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	if out, err := check(); err == nil {
		t.Errorf("healthcheck of a program that is gone succeeds: %s", out)
	}
}
