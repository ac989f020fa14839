package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pgshoal/pgshoal/control"
)

func newSchemaCommand(env *environment) *cobra.Command {
	return newGroupCommand("schema", "Look at the schema of the nodes", newSchemaDiffCommand(env))
}

func newSchemaDiffCommand(env *environment) *cobra.Command {
	var api apiOptions
	var database string
	cmd := &cobra.Command{
		Use:   "diff",
		Short: "Compare the schema of all nodes with the home node's; exit code 1 if they differ",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var drift control.Drift
			err := api.show(cmd.Context(), env, "/api/v1/schema/diff", filter("database", database), &drift,
				func(w io.Writer) { printDrift(w, &drift) })
			if err == nil && len(drift.Differences) > 0 {
				return silentError{}
			}
			return err
		},
	}
	api.addFlags(cmd)
	cmd.Flags().StringVar(&database, "database", "", "only this `database`")
	return cmd
}

func printDrift(w io.Writer, drift *control.Drift) {
	for _, name := range drift.Unchecked {
		fmt.Fprintf(w, "node %s is joining and was not compared\n", name)
	}
	if len(drift.Differences) == 0 {
		fmt.Fprintf(w, "all nodes have the schema of %s\n", drift.Home)
		return
	}
	for _, d := range drift.Differences {
		fmt.Fprintln(w, strings.TrimRight(d.String(), "\n"))
	}
}
