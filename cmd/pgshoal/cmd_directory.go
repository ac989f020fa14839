package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"text/tabwriter"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
)

// directoryOptions are how to reach a router, and how to print.
type directoryOptions struct {
	clientOptions
	json bool
}

// directoryEntry is where a key lives.
type directoryEntry struct {
	Key   string `json:"key"`
	Shard uint32 `json:"shard"`
	Node  string `json:"node"`
}

func newDirectoryCommand(env *environment) *cobra.Command {
	return newGroupCommand("directory", "Look up and place the keys of directories",
		newDirectoryGetCommand(env), newDirectorySetCommand(env), newDirectoryListCommand(env), newDirectoryImportCommand(env))
}

func (o *directoryOptions) flags(cmd *cobra.Command) {
	o.addFlags(cmd)
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON for programs")
}

// with runs work on a connection to a router.
func (o *directoryOptions) with(ctx context.Context, work func(*pgx.Conn) error) error {
	conn, err := o.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return work(conn)
}

// entries runs a function that returns entries.
func entries(ctx context.Context, conn *pgx.Conn, sql string, args ...any) ([]directoryEntry, error) {
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return nil, serverError(err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e directoryEntry, err error) {
		var shard string
		if err = row.Scan(&e.Key, &shard, &e.Node); err != nil {
			return e, err
		}
		id, err := strconv.ParseUint(shard, 10, 32)
		e.Shard = uint32(id)
		return e, err
	})
	return list, serverError(err)
}

func (o *directoryOptions) print(w io.Writer, list []directoryEntry) error {
	if o.json {
		if list == nil {
			list = []directoryEntry{}
		}
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(list)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "KEY\tSHARD\tNODE")
	for _, e := range list {
		fmt.Fprintf(t, "%s\t%d\t%s\n", e.Key, e.Shard, e.Node)
	}
	return t.Flush()
}

func newDirectoryGetCommand(env *environment) *cobra.Command {
	var o directoryOptions
	cmd := &cobra.Command{
		Use:   "get TABLE KEY",
		Short: "Show the shard and the node of a key",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.with(cmd.Context(), func(conn *pgx.Conn) error {
				list, err := entries(cmd.Context(), conn, "SELECT directory_get($1, $2)", args[0], args[1])
				if err != nil {
					return err
				}
				if len(list) == 0 {
					return withHints(fmt.Errorf("key %q has no entry", args[1]), "It gets one with its first row, or with pgshoal directory set.")
				}
				return o.print(env.stdout, list)
			})
		},
	}
	o.flags(cmd)
	return cmd
}

func newDirectorySetCommand(env *environment) *cobra.Command {
	var o directoryOptions
	var shard, node string
	cmd := &cobra.Command{
		Use:   "set TABLE KEY (--shard ID | --node NODE)",
		Short: "Place a key by hand; its rows move along",
		Long: "Gives a key an entry in a shard, or in the least loaded shard of a node. Rows that the key has on another node\n" +
			"move in one transaction, for all tables of the directory; statements on these tables wait meanwhile.",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			argument, value := "shard", shard
			if shard == "" {
				argument, value = "node", node
			}
			if (shard == "") == (node == "") {
				return newUsageError("give either --shard or --node")
			}
			return o.with(cmd.Context(), func(conn *pgx.Conn) error {
				list, err := entries(cmd.Context(), conn, "SELECT directory_set($1, $2, "+argument+" => $3)", args[0], args[1], value)
				if err != nil {
					return err
				}
				return o.print(env.stdout, list)
			})
		},
	}
	o.flags(cmd)
	cmd.Flags().StringVar(&shard, "shard", "", "`id` of the shard")
	cmd.Flags().StringVar(&node, "node", "", "`name` of the node")
	return cmd
}

func newDirectoryListCommand(env *environment) *cobra.Command {
	var o directoryOptions
	var after string
	var limit int
	cmd := &cobra.Command{
		Use:   "list TABLE",
		Short: "List keys in order, with their shards and nodes",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.with(cmd.Context(), func(conn *pgx.Conn) error {
				sql, values := "SELECT directory_list($1, NULL, $2)", []any{args[0], strconv.Itoa(limit)}
				if cmd.Flags().Changed("after") {
					sql, values = "SELECT directory_list($1, $3, $2)", append(values, after)
				}
				list, err := entries(cmd.Context(), conn, sql, values...)
				if err != nil {
					return err
				}
				return o.print(env.stdout, list)
			})
		},
	}
	o.flags(cmd)
	cmd.Flags().StringVar(&after, "after", "", "begin after this `key`, the last one of the page before")
	cmd.Flags().IntVar(&limit, "limit", 1000, "at most so many `keys`")
	return cmd
}

// importBatch is how many lines go to the router at once.
const importBatch = 10000

func newDirectoryImportCommand(env *environment) *cobra.Command {
	var o directoryOptions
	cmd := &cobra.Command{
		Use:   "import TABLE FILE",
		Short: "Make entries for new keys from CSV lines: key, or key and shard or node",
		Long: "Each line of FILE (- for standard input) is a key, alone or with the id of a shard or the name of a node. A key without a\n" +
			"place goes where the load is least. A key that has an entry keeps it; pgshoal directory set changes it.",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var in io.Reader = os.Stdin
			if args[1] != "-" {
				f, err := os.Open(args[1])
				if err != nil {
					return err
				}
				defer f.Close()
				in = f
			}
			return o.with(cmd.Context(), func(conn *pgx.Conn) error { return o.importFrom(cmd.Context(), env, conn, args[0], in) })
		},
	}
	o.flags(cmd)
	return cmd
}

func (o *directoryOptions) importFrom(ctx context.Context, env *environment, conn *pgx.Conn, table string, in io.Reader) error {
	lines := csv.NewReader(in)
	lines.FieldsPerRecord = -1
	imported, kept := 0, 0
	for more := true; more; {
		var batch [][]string
		for len(batch) < importBatch {
			line, err := lines.Read()
			if errors.Is(err, io.EOF) {
				more = false
				break
			}
			if err != nil {
				return err
			}
			if len(line) > 2 {
				at, _ := lines.FieldPos(0)
				return fmt.Errorf("line %d has %d fields; it is a key, or a key and a shard or node", at, len(line))
			}
			batch = append(batch, line)
		}
		a, b, err := importLines(ctx, conn, table, batch)
		if err != nil {
			return withHints(err, fmt.Sprintf("%d keys were imported before; importing them again does no harm.", imported))
		}
		imported, kept = imported+a, kept+b
	}
	if o.json {
		return json.NewEncoder(env.stdout).Encode(map[string]int{"imported": imported, "kept": kept})
	}
	fmt.Fprintf(env.stdout, "%d keys imported, %d had an entry and kept it\n", imported, kept)
	return nil
}

func importLines(ctx context.Context, conn *pgx.Conn, table string, batch [][]string) (imported, kept int, err error) {
	if len(batch) == 0 {
		return 0, 0, nil
	}
	data, err := json.Marshal(batch)
	if err != nil {
		return 0, 0, err
	}
	var a, b string
	if err := conn.QueryRow(ctx, "SELECT directory_import($1, $2)", table, string(data)).Scan(&a, &b); err != nil {
		return 0, 0, serverError(err)
	}
	imported, _ = strconv.Atoi(a)
	kept, err = strconv.Atoi(b)
	return imported, kept, err
}
