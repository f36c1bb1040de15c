// Origin serves what the browser tests load. It prints where it listens for each protocol, and its certificate authority, one a line.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"millpond/e2e/harness"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) != 2 {
		log.Fatal("usage: origin DIRECTORY-FOR-ITS-CERTIFICATE")
	}
	origin, err := harness.NewOrigin()
	if err != nil {
		log.Fatal(err)
	}
	defer origin.Close()
	ca, err := origin.Authority.WriteFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range harness.Protocols {
		fmt.Println(p, origin.Addr(p))
	}
	fmt.Println("ca", ca)
	<-ctx.Done()
}
