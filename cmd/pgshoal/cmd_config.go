package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pgshoal/pgshoal/config"
)

func newConfigCommand(env *environment) *cobra.Command {
	return newGroupCommand("config", "Work with the configuration file", newConfigCheckCommand(env))
}

func newConfigCheckCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Say whether a configuration file is right, or everything that is wrong with it",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			_, err := config.Load(args[0])
			var problems config.Problems
			if errors.As(err, &problems) {
				for _, p := range problems {
					fmt.Fprintln(env.stderr, p)
				}
				return silentError{}
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(env.stdout, "%s: ok\n", args[0])
			return nil
		},
	}
}
