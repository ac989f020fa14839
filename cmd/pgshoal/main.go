// Command pgshoal runs and manages a cluster of PostgreSQL servers that answer as one.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// environment is what commands may use of the outside world; log writes to stderr.
type environment struct {
	stdout, stderr io.Writer
	log            *slog.Logger
}

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	env := &environment{stdout: stdout, stderr: stderr, log: slog.New(slog.NewTextHandler(stderr, nil))}
	started := false
	root := newRootCommand(env)
	root.PersistentPreRun = func(*cobra.Command, []string) { started = true }
	root.SetArgs(args)
	err := root.ExecuteContext(context.Background())
	if err == nil {
		return 0
	}
	// What fails before a command starts is a wrong flag, argument or command name.
	var usage *usageError
	wrongUse := !started || errors.As(err, &usage)
	printError(stderr, err, wrongUse)
	if wrongUse {
		return 2
	}
	return 1
}

func newRootCommand(env *environment) *cobra.Command {
	root := &cobra.Command{
		Use:           "pgshoal",
		Short:         "Many PostgreSQL servers that answer as one",
		Long:          "pgshoal makes many PostgreSQL servers answer as one. Start with: pgshoal up",
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          knownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(env.stdout)
	root.SetErr(env.stderr)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(
		newUpCommand(env), newDownCommand(env), newStatusCommand(env),
		newRouterCommand(env), newControllerCommand(env), newEtcdCommand(env),
		newConfigCommand(env),
		newNodeCommand(env), newTableCommand(env), newShardCommand(env), newRegionCommand(env), newDirectoryCommand(env), newSchemaCommand(env), newVerifyCommand(env),
		newTxCommand(env),
		newSimulateCommand(env),
	)
	return root
}

// knownCommand runs when the arguments name no command: one sentence, with a guess at what was meant.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	guess := ""
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		guess = fmt.Sprintf(" (did you mean %s?)", strings.Join(near, " or "))
	}
	return newUsageError("there is no command %q%s", args[0], guess)
}

// newGroupCommand makes a command that only holds others.
func newGroupCommand(name, short string, children ...*cobra.Command) *cobra.Command {
	names := make([]string, len(children))
	for i, child := range children {
		names[i] = child.Name()
	}
	group := &cobra.Command{
		Use:   name,
		Short: short,
		Args:  cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return newUsageError("unknown command %q for %q, which has: %s", args[0], "pgshoal "+name, strings.Join(names, ", "))
			}
			return newUsageError("%q needs one of: %s", "pgshoal "+name, strings.Join(names, ", "))
		},
	}
	group.AddCommand(children...)
	return group
}

// usageError is a command line that cannot be meant; it ends with exit code 2.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

func newUsageError(format string, args ...any) error {
	return &usageError{message: fmt.Sprintf(format, args...)}
}

// hintedError is an error with a way out, each hint printed on a line of its own.
type hintedError struct {
	err   error
	hints []string
}

func (e *hintedError) Error() string   { return e.err.Error() }
func (e *hintedError) Unwrap() error   { return e.err }
func (e *hintedError) Hints() []string { return e.hints }

func withHints(err error, hints ...string) error {
	if err == nil {
		return nil
	}
	return &hintedError{err: err, hints: hints}
}

// silentError ends a command with exit code 1 after it has said everything itself.
type silentError struct{}

func (silentError) Error() string { return "failed" }

func printError(w io.Writer, err error, wrongUse bool) {
	var silent silentError
	if errors.As(err, &silent) {
		return
	}
	fmt.Fprintf(w, "pgshoal: %s\n", err)
	for _, hint := range hintsOf(err) {
		fmt.Fprintln(w, hint)
	}
	if wrongUse {
		fmt.Fprintln(w, "Run \"pgshoal --help\", or a command with --help, to see what can be said.")
	}
}

// hintsOf finds the way out that an error carries, whichever package made it.
func hintsOf(err error) []string {
	var many interface{ Hints() []string }
	if errors.As(err, &many) {
		return many.Hints()
	}
	var one interface{ Hint() string }
	if errors.As(err, &one) && one.Hint() != "" {
		return []string{one.Hint()}
	}
	return nil
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
