package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pgshoal/pgshoal/control"
)

func newSchemaCommand(env *environment) *cobra.Command {
	return newGroupCommand("schema", "Compare and place schemas", newSchemaDiffCommand(env),
		newSchemaPlaceCommand(env, "distribute", "Put all tables of a schema on one node", "create_distributed_schema", "distributed"),
		newSchemaPlaceCommand(env, "undistribute", "Bring the tables of a schema back to the home node", "undistribute_schema", "local"))
}

func newSchemaPlaceCommand(env *environment, name, short, function, state string) *cobra.Command {
	var o clientOptions
	cmd := &cobra.Command{
		Use:   name + " SCHEMA",
		Short: short,
		Long:  short + ". Calls " + function + " through a router, as the role of the connection string:\nonly the schema's owner or a superuser may.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			conn, err := o.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close(context.WithoutCancel(cmd.Context())) }()
			if _, err := conn.Exec(cmd.Context(), "SELECT "+function+"($1)", args[0]); err != nil {
				return serverError(err)
			}
			fmt.Fprintf(env.stdout, "schema %s is %s\n", args[0], state)
			return nil
		},
	}
	o.addFlags(cmd)
	return cmd
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
