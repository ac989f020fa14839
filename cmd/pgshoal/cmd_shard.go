package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pgshoal/pgshoal/control"
)

func newShardCommand(env *environment) *cobra.Command {
	return newGroupCommand("shard", "Look at shards", newShardListCommand(env))
}

func newShardListCommand(env *environment) *cobra.Command {
	var api apiOptions
	var database, table string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the shards and the nodes that hold them",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var shards []control.ShardInfo
			return api.show(cmd.Context(), env, "/api/v1/shards", filter("database", database, "table", table), &shards,
				func(w io.Writer) { printShards(w, shards) })
		},
	}
	api.addFlags(cmd)
	cmd.Flags().StringVar(&database, "database", "", "only this `database`")
	cmd.Flags().StringVar(&table, "table", "", "only the shards of this `table`, as name or schema.name")
	return cmd
}

func printShards(w io.Writer, shards []control.ShardInfo) {
	fmt.Fprintln(w, "SHARD\tDISTRIBUTION\tDATABASE\tSTRATEGY\tKEY TYPE\tFROM\tTO\tNODE\tREGION")
	for _, s := range shards {
		from, to := s.Low, s.High
		if from == "" {
			from = "start"
		}
		if to == "" {
			to = "end"
		}
		fmt.Fprintf(w, "%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.ID, s.Distribution, s.Database, s.Strategy,
			strings.Join(s.Types, ", "), from, to, s.Node, orDash(s.Region))
	}
}
