package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pgshoal/pgshoal/localcluster"
)

type upOptions struct {
	localcluster.Options
	detach     bool
	supervisor bool // this process is the one that --detach started
}

func newUpCommand(env *environment) *cobra.Command {
	var o upOptions
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster on this machine, creating it the first time",
		Long: "Start a cluster on this machine: PostgreSQL servers as nodes, a topology store, a controller and a\n" +
			"router, all under one directory. The first time it is created; later its data is found again.\n" +
			"What is not given is as it was the last time.",
		Example: "  pgshoal up\n" +
			"  pgshoal up --dir /tmp/shoal --nodes 2 --replicas 1 --port 0 --detach",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.forget(cmd)
			return runUp(cmd.Context(), env, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Dir, "dir", "", "the cluster's directory ("+defaultDirText()+")")
	f.IntVar(&o.Nodes, "nodes", localcluster.DefaultNodes, "nodes of a new cluster")
	f.IntVar(&o.Replicas, "replicas", 0, "streaming replicas of each node of a new cluster")
	f.IntVar(&o.Port, "port", localcluster.DefaultPort, "port of the router on 127.0.0.1; 0 picks a free one")
	f.StringVar(&o.HTTP, "http", localcluster.DefaultHTTP, "address for health, metrics and the admin API; port 0 picks a free one")
	f.BoolVar(&o.detach, "detach", false, "return when the cluster is ready, and leave it running")
	f.StringVar(&o.BinDir, "pg-bin", "", "directory of PostgreSQL's programs (found by itself)")
	f.BoolVar(&o.UnsafeFast, "unsafe-fast", false, "new cluster without fsync: a power failure destroys its data")
	f.BoolVar(&o.supervisor, "supervisor", false, "")
	_ = f.MarkHidden("supervisor") // fails only for a flag that does not exist
	return cmd
}

func defaultDirText() string {
	dir, err := localcluster.DefaultDir()
	if err != nil {
		return "no default here"
	}
	return "default " + dir
}

// forget unsets what was not given, so that what the cluster remembers counts.
func (o *upOptions) forget(cmd *cobra.Command) {
	for name, number := range map[string]*int{"nodes": &o.Nodes, "replicas": &o.Replicas, "port": &o.Port} {
		if !cmd.Flags().Changed(name) {
			*number = localcluster.Unset
		}
	}
	if !cmd.Flags().Changed("http") {
		o.HTTP = ""
	}
}

func runUp(ctx context.Context, env *environment, o upOptions) error {
	ctx, stop := signal.NotifyContext(ctx, endings()...)
	defer stop()
	var err error
	if o.Dir, err = clusterDir(o.Dir); err != nil {
		return err
	}
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return err
	}
	if o.BinDir != "" {
		if o.BinDir, err = filepath.Abs(o.BinDir); err != nil {
			return err
		}
	}
	if o.Executable, err = os.Executable(); err != nil {
		return err
	}
	o.Log = env.log
	o.Say = func(line string) { fmt.Fprintln(env.stdout, line) }
	if o.supervisor {
		if err := localcluster.Detached(ctx, o.Options); err != nil {
			return silentError{} // the process that waits has been told
		}
		return nil
	}
	o.Ready = func(s localcluster.Summary) { printReady(env, s, o.detach) }
	if o.detach {
		err = localcluster.Detach(ctx, o.Options, o.arguments())
	} else {
		err = localcluster.Up(ctx, o.Options)
	}
	var running *localcluster.RunningError
	if errors.As(err, &running) {
		return alreadyUp(ctx, env, o)
	}
	return err
}

// endings are the signals that stop the cluster. A closed terminal is one, unless nohup says no.
func endings() []os.Signal {
	list := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		list = append(list, syscall.SIGHUP)
	}
	return list
}

// arguments are the command line of a detached supervisor.
func (o *upOptions) arguments() []string {
	args := []string{"up", "--dir", o.Dir, "--supervisor"}
	number := func(flag string, value int) {
		if value != localcluster.Unset {
			args = append(args, flag, strconv.Itoa(value))
		}
	}
	number("--nodes", o.Nodes)
	number("--replicas", o.Replicas)
	number("--port", o.Port)
	if o.HTTP != "" {
		args = append(args, "--http", o.HTTP)
	}
	if o.BinDir != "" {
		args = append(args, "--pg-bin", o.BinDir)
	}
	if o.UnsafeFast {
		args = append(args, "--unsafe-fast")
	}
	return args
}

// alreadyUp is a second `up` on a running cluster: with --detach that is what was wanted.
func alreadyUp(ctx context.Context, env *environment, o upOptions) error {
	s, err := localcluster.AwaitReady(ctx, o.Dir)
	if err != nil {
		return err
	}
	if !o.detach {
		return withHints(
			fmt.Errorf("the cluster in %s is running already: %s", s.Dir, s.DSN),
			"stop it with pgshoal down --dir "+s.Dir+", or choose another directory with --dir",
		)
	}
	fmt.Fprintf(env.stdout, "the cluster in %s is running already\n", s.Dir)
	fmt.Fprintf(env.stdout, "ready: %s\n", s.DSN)
	return nil
}

func printReady(env *environment, s localcluster.Summary, detached bool) {
	var b strings.Builder
	what := "found again"
	if s.Created {
		what = "created"
	}
	fmt.Fprintf(&b, "cluster %s in %s: %s, PostgreSQL %s\n", what, s.Dir, countNodes(s), s.PostgreSQL)
	if s.UnsafeFast {
		fmt.Fprintln(&b, "fsync is off: fast, and a power failure destroys the data")
	}
	fmt.Fprintf(&b, "health, metrics and admin API: http://%s (token in %s)\n", s.HTTP, s.TokenFile)
	fmt.Fprintf(&b, "\nWhat to type next:\n")
	fmt.Fprintf(&b, "  psql '%s'\n", s.DSN)
	fmt.Fprintf(&b, "  CREATE TABLE orders (customer_id bigint, id bigint, PRIMARY KEY (customer_id, id));\n")
	fmt.Fprintf(&b, "  SELECT create_distributed_table('orders', 'customer_id');\n")
	fmt.Fprintf(&b, "  pgshoal status --dir %s\n\n", s.Dir)
	if detached {
		fmt.Fprintf(&b, "pgshoal down --dir %s stops the cluster\n", s.Dir)
	} else {
		fmt.Fprintf(&b, "Ctrl-C stops the cluster\n")
	}
	fmt.Fprintf(&b, "ready: %s\n", s.DSN)
	fmt.Fprint(env.stdout, b.String())
}

func countNodes(s localcluster.Summary) string {
	text := fmt.Sprintf("%d nodes", s.Nodes)
	if s.Nodes == 1 {
		text = "1 node"
	}
	switch s.Replicas {
	case 0:
		return text
	case 1:
		return text + " with a replica each"
	default:
		return fmt.Sprintf("%s with %d replicas each", text, s.Replicas)
	}
}

// clusterDir is the directory that was given, or the default.
func clusterDir(dir string) (string, error) {
	if dir != "" {
		return dir, nil
	}
	return localcluster.DefaultDir()
}
