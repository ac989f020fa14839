package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/pgshoal/pgshoal/control"
)

func newShardCommand(env *environment) *cobra.Command {
	return newGroupCommand("shard", "List, split, merge and isolate shards",
		newShardListCommand(env), newShardSplitCommand(env), newShardMergeCommand(env), newShardIsolateCommand(env))
}

func newShardListCommand(env *environment) *cobra.Command {
	var api apiOptions
	var database, table string
	var key []string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the shards and the nodes that hold them",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var shards []control.ShardInfo
			if len(key) > 0 && table == "" {
				return newUsageError("--key belongs to a table: give --table too")
			}
			query := filter("database", database, "table", table)
			for _, k := range key {
				query.Add("key", k)
			}
			return api.show(cmd.Context(), env, "/api/v1/shards", query, &shards,
				func(w io.Writer) { printShards(w, shards) })
		},
	}
	api.addFlags(cmd)
	cmd.Flags().StringVar(&database, "database", "", "only this `database`")
	cmd.Flags().StringVar(&table, "table", "", "only the shards of this `table`, as name or schema.name")
	cmd.Flags().StringArrayVar(&key, "key", nil, "only the shard that has this `value` of the key; once for each key column")
	return cmd
}

func newShardSplitCommand(env *environment) *cobra.Command {
	var api apiOptions
	var req control.SplitRequest
	cmd := &cobra.Command{
		Use:   "split ID [--at VALUE | --parts N | --by size|load]",
		Short: "Cut a shard in two or more, on its node",
		Long: "Only the map changes: rows stay where they are. --at is a bound as pgshoal shard list shows it, given once for each\n" +
			"column of the key that it fixes: a value of a range, a region, a signed hash. --by size looks at rows of the shard and\n" +
			"cuts it in their middle; --by load does so with the keys that statements were about, which routers sample (SHOW shoal.load).\n" +
			"Without an option a shard of hashes is cut in two equal parts.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := shardID(args[0]); err != nil {
				return err
			}
			return api.editShards(cmd.Context(), env, "/api/v1/shards/"+args[0]+"/split", req)
		},
	}
	api.addFlags(cmd)
	cmd.Flags().StringArrayVar(&req.At, "at", nil, "`value` where the new shard begins; once for each key column")
	cmd.Flags().IntVar(&req.Parts, "parts", 0, "cut into `n` equal parts")
	cmd.Flags().StringVar(&req.By, "by", "", "cut where the shard's rows, or the statements about its keys, have their middle: `size or load`")
	cmd.Flags().BoolVar(&req.Dry, "dry-run", false, "only show what it would make")
	cmd.MarkFlagsMutuallyExclusive("at", "parts", "by")
	return cmd
}

func newShardMergeCommand(env *environment) *cobra.Command {
	var api apiOptions
	var req control.MergeRequest
	cmd := &cobra.Command{
		Use:   "merge ID ID",
		Short: "Join two neighbouring shards of one node",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, a := range args {
				id, err := shardID(a)
				if err != nil {
					return err
				}
				req.Shards = append(req.Shards, id)
			}
			return api.editShards(cmd.Context(), env, "/api/v1/shards/merge", req)
		},
	}
	api.addFlags(cmd)
	cmd.Flags().BoolVar(&req.Dry, "dry-run", false, "only show what it would make")
	return cmd
}

func newShardIsolateCommand(env *environment) *cobra.Command {
	var api apiOptions
	var req control.IsolateRequest
	cmd := &cobra.Command{
		Use:   "isolate TABLE KEY...",
		Short: "Give one key a shard of its own",
		Long: "The key is one value, or one for each key column. Fewer values isolate all keys that begin with them,\n" +
			"as far as the strategy keeps them together.",
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Table, req.Key = args[0], args[1:]
			return api.editShards(cmd.Context(), env, "/api/v1/shards/isolate", req)
		},
	}
	api.addFlags(cmd)
	cmd.Flags().StringVar(&req.Database, "database", "", "`database` of the table (default the controller's own)")
	cmd.Flags().BoolVar(&req.Dry, "dry-run", false, "only show what it would make")
	return cmd
}

func shardID(text string) (uint32, error) {
	id, err := strconv.ParseUint(text, 10, 32)
	if err != nil || id == 0 {
		return 0, newUsageError("%q is not the id of a shard; pgshoal shard list shows them", text)
	}
	return uint32(id), nil
}

// editShards asks for a change of shards and prints what it made.
func (o *apiOptions) editShards(ctx context.Context, env *environment, path string, req any) error {
	client, err := o.client()
	if err != nil {
		return err
	}
	var changed control.ShardsChanged
	data, err := client.call(ctx, http.MethodPost, path, nil, req, &changed)
	if err != nil {
		return err
	}
	if o.json {
		_, err = env.stdout.Write(data)
		return err
	}
	switch {
	case changed.Dry:
		fmt.Fprintf(env.stdout, "this would make, with epoch %d:\n", changed.Epoch)
	default:
		fmt.Fprintf(env.stdout, "done with epoch %d:\n", changed.Epoch)
	}
	if len(changed.Shards) == 0 {
		_, err = fmt.Fprintln(env.stdout, "all shards stay as they are")
		return err
	}
	w := tabwriter.NewWriter(env.stdout, 0, 0, 2, ' ', 0)
	printShards(w, changed.Shards)
	return w.Flush()
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
