package main

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pgshoal/pgshoal/localcluster"
)

// clientOptions say how to reach a router, for commands that act as the role of a connection string.
type clientOptions struct{ dsn, dir, database string }

func (o *clientOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.dsn, "dsn", "", "`connection string` of a router, instead of --dir")
	f.StringVar(&o.dir, "dir", "", "`directory` of a local cluster (default as for pgshoal up)")
	f.StringVar(&o.database, "database", "", "`database` to use, if not the connection string's")
}

// connect opens a session at a router: the one that is named, or the local cluster's.
func (o *clientOptions) connect(ctx context.Context) (*pgx.Conn, error) {
	dsn := o.dsn
	switch {
	case dsn != "" && o.dir != "":
		return nil, newUsageError("give either --dir or --dsn")
	case dsn == "":
		local, err := localcluster.RouterDSN(o.dir)
		if err != nil {
			return nil, err
		}
		dsn = local
	}
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, newUsageError("the connection string is not valid")
	}
	if o.database != "" {
		cfg.Database = o.database
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	return conn, serverError(err)
}
