package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"
)

// distributeOptions are the arguments of create_distributed_table, and how to reach a router.
type distributeOptions struct {
	clientOptions
	assignBy                                       string
	strategy, colocateWith, regions, defaultRegion string
	shards, hashColumns                            int
	splitAt                                        []string
	dryRun, json                                   bool
	table, columns                                 string
}

func newTableDistributeCommand(env *environment) *cobra.Command {
	var o distributeOptions
	cmd := &cobra.Command{
		Use:   "distribute TABLE [COLUMNS]",
		Short: "Spread the rows of a table over the nodes",
		Long: "Calls create_distributed_table through a router, as the role of the connection string: only the\n" +
			"table's owner or a superuser may. COLUMNS are the key's, separated by commas; a strategy that names\n" +
			"its columns needs none.\n\n" +
			"  pgshoal table distribute orders tenant_id\n" +
			"  pgshoal table distribute events created_at --strategy range --split-at 2026-01-01 --split-at 2026-02-01\n" +
			"  pgshoal table distribute users --strategy 'list(country), hash(id)' --regions '{\"eu\": [\"de\", \"fr\"], \"us\": [\"us\"]}'",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.table = args[0]
			if len(args) > 1 {
				o.columns = args[1]
			}
			return o.run(cmd.Context(), env)
		},
	}
	o.addFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.assignBy, "assign-by", "", "what makes a shard the least loaded one for a new key of a directory: `rows`, bytes or weight (default rows)")
	f.StringVar(&o.strategy, "strategy", "", "hash, range, list, directory, or a sequence such as 'list(region), hash(tenant_id)' (default hash)")
	f.IntVar(&o.hashColumns, "hash-columns", 0, "hash only the first `n` columns; rows of one hash stay sorted by the rest")
	f.IntVar(&o.shards, "shards", 0, "`number` of shards, of a list in each region (default 32)")
	f.StringArrayVar(&o.splitAt, "split-at", nil, "`value` that begins a shard of a range, once for each; {a,b} for several columns")
	f.StringVar(&o.regions, "regions", "", "`json` that says which values live in which region")
	f.StringVar(&o.defaultRegion, "default-region", "", "`region` of all other values; without it they are refused")
	f.StringVar(&o.colocateWith, "colocate-with", "", "`table` whose distribution to join, or none")
	f.BoolVar(&o.dryRun, "dry-run", false, "print the shards and the rows that each node would get, and change nothing")
	f.BoolVar(&o.json, "json", false, "print JSON for programs, with --dry-run")
	return cmd
}

func (o *distributeOptions) run(ctx context.Context, env *environment) error {
	if o.json && !o.dryRun {
		return newUsageError("--json goes with --dry-run")
	}
	conn, err := o.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	sql, args := o.call()
	if !o.dryRun {
		if _, err := conn.Exec(ctx, sql, args...); err != nil {
			return serverError(err)
		}
		fmt.Fprintf(env.stdout, "table %s is distributed\n", o.table)
		return nil
	}
	format := "TEXT"
	if o.json {
		format = "JSON"
	}
	rows, err := conn.Query(ctx, "EXPLAIN (FORMAT "+format+") "+sql, append([]any{pgx.QueryResultFormats{pgx.TextFormatCode}}, args...)...)
	if err != nil {
		return serverError(err)
	}
	defer rows.Close()
	for rows.Next() {
		fmt.Fprintf(env.stdout, "%s\n", rows.RawValues()[0])
	}
	return serverError(rows.Err())
}

// call is the call of create_distributed_table and its parameters.
func (o *distributeOptions) call() (sql string, args []any) {
	var named []string
	add := func(name, value string) {
		if value != "" {
			args = append(args, value)
			named = append(named, fmt.Sprintf("%s => $%d", name, len(args)))
		}
	}
	number := func(n int) string {
		if n == 0 {
			return ""
		}
		return strconv.Itoa(n)
	}
	add("table_name", o.table)
	add("distribution_column", o.columns)
	add("strategy", o.strategy)
	add("hash_columns", number(o.hashColumns))
	add("shard_count", number(o.shards))
	add("split_at", arrayText(o.splitAt))
	add("regions", o.regions)
	add("default_region", o.defaultRegion)
	add("colocate_with", o.colocateWith)
	add("assign_by", o.assignBy)
	return "SELECT create_distributed_table(" + strings.Join(named, ", ") + ")", args
}

// arrayText writes values as PostgreSQL reads an array; a value in braces is a row of values.
func arrayText(values []string) string {
	if len(values) == 0 {
		return ""
	}
	parts := make([]string, len(values))
	for i, v := range values {
		if strings.HasPrefix(v, "{") && strings.HasSuffix(v, "}") {
			parts[i] = v
			continue
		}
		parts[i] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(v) + `"`
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// serverError shows what the server said, with its detail and the way out.
func serverError(err error) error {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return err
	}
	var more []string
	for _, line := range []string{e.Detail, e.Hint} {
		if line != "" {
			more = append(more, line)
		}
	}
	return withHints(fmt.Errorf("%s (SQLSTATE %s)", e.Message, e.Code), more...)
}
