package localcluster

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
)

// TestMain lets the test binary stand in for the pgshoal program: the supervisor and the topology
// store run as processes of their own, which can be killed.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == titleEtcd || os.Args[1] == "up") {
		if err := actAsProgram(os.Args[1], os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func actAsProgram(command string, args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if command == titleEtcd {
		return ServeEtcd(ctx, args[1], log, func(string) {})
	}
	opts, err := programOptions(args)
	if err != nil {
		return err
	}
	opts.Log = log
	return Detached(ctx, opts)
}

// programOptions reads the few flags that the tests' supervisor has.
func programOptions(args []string) (Options, error) {
	executable, err := os.Executable()
	opts := Options{Nodes: Unset, Replicas: Unset, Port: Unset, Executable: executable, only: []string{}}
	for i := 0; i+1 < len(args) && err == nil; i += 2 {
		switch args[i] {
		case "--dir":
			opts.Dir = args[i+1]
		case "--nodes":
			opts.Nodes, err = strconv.Atoi(args[i+1])
		case "--replicas":
			opts.Replicas, err = strconv.Atoi(args[i+1])
		case "--port":
			opts.Port, err = strconv.Atoi(args[i+1])
		case "--http":
			opts.HTTP = args[i+1]
		case "--pg-bin":
			opts.BinDir = args[i+1]
		case "--unsafe-fast":
			opts.UnsafeFast = args[i+1] == "true"
		default:
			err = fmt.Errorf("unknown flag %s", args[i])
		}
	}
	return opts, err
}

func listen(t *testing.T, port int) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	return l
}
