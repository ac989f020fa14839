package main

import (
	"fmt"
	"io"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/pgshoal/pgshoal/control"
)

func newTableCommand(env *environment) *cobra.Command {
	return newGroupCommand("table", "List and distribute tables", newTableListCommand(env), newTableDistributeCommand(env))
}

func newTableListCommand(env *environment) *cobra.Command {
	var api apiOptions
	var database string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the tables and where their rows are",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var tables []control.TableInfo
			return api.show(cmd.Context(), env, "/api/v1/tables", filter("database", database), &tables,
				func(w io.Writer) { printTables(w, tables) })
		},
	}
	api.addFlags(cmd)
	cmd.Flags().StringVar(&database, "database", "", "only this `database`")
	return cmd
}

// filter is a query with the parameters that have a value.
func filter(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q
}

func printTables(w io.Writer, tables []control.TableInfo) {
	fmt.Fprintln(w, "DATABASE\tTABLE\tKIND\tSTRATEGY\tDISTRIBUTION\tSHARDS\tOWNER")
	for _, t := range tables {
		distribution, shards := "-", "-"
		if t.Kind == "distributed" {
			distribution, shards = fmt.Sprint(t.Distribution), fmt.Sprint(t.Shards)
		}
		fmt.Fprintf(w, "%s\t%s.%s\t%s\t%s\t%s\t%s\t%s\n",
			t.Database, t.Schema, t.Name, t.Kind, orDash(t.Strategy), distribution, shards, t.Owner)
	}
}
