package control

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/keyspace"
)

// candidate is a server that is to become a node, reached as its connection string says.
type candidate struct {
	dsn       string // leads to the primary only
	config    *pgx.ConnConfig
	addresses []string // of the primary and its replicas
}

// candidate looks at a connection string and at whether the server answers.
func (c *Controller) candidate(ctx context.Context, dsn string) (*candidate, error) {
	full, err := c.cfg.Access.completeDSN(dsn)
	if err != nil {
		return nil, err
	}
	config, addresses, err := c.cfg.Access.parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	if len(addresses) > 1 {
		access := c.cfg.Access
		access.User, access.Password, access.Database = config.User, config.Password, config.Database
		if full, err = access.primary(ctx, keyspace.Node{Addresses: addresses}); err != nil {
			return nil, err
		}
		if config, err = pgx.ParseConfig(full); err != nil {
			return nil, err
		}
	}
	return &candidate{dsn: full, config: config, addresses: addresses}, nil
}

// copySchema gives a candidate the home node's schema and roles. Its superuser gets the cluster's
// password first, and from then on the node is reached as all others are.
func (c *Controller) copySchema(ctx context.Context, home, to *candidate) ([]string, error) {
	if err := adoptPassword(ctx, home, to); err != nil {
		return nil, fmt.Errorf("set the cluster's password of role %s: %w", to.config.User, err)
	}
	dsn, err := c.cfg.Access.primary(ctx, keyspace.Node{Addresses: to.addresses})
	if err != nil {
		return nil, noLogin(c.cfg.Access.User, to.addresses, err)
	}
	if to.config, err = pgx.ParseConfig(dsn); err != nil {
		return nil, err
	}
	to.dsn = dsn
	return catalog.CopySchema(ctx, home.dsn, to.dsn)
}

func noLogin(role string, addresses []string, err error) *Refusal {
	return &Refusal{
		Status: http.StatusConflict, Err: err, Message: fmt.Sprintf("role %s cannot log in at %s: %v", role, strings.Join(addresses, ", "), err),
		Way: "Let the cluster's roles in: scram-sha-256 for all roles and databases in the server's pg_hba.conf.",
	}
}

// adoptPassword makes the verifier of a candidate's superuser the home node's.
func adoptPassword(ctx context.Context, home, to *candidate) error {
	source, err := pgx.ConnectConfig(ctx, home.config)
	if err != nil {
		return err
	}
	defer source.Close(context.WithoutCancel(ctx))
	target, err := pgx.ConnectConfig(ctx, to.config)
	if err != nil {
		return err
	}
	defer target.Close(context.WithoutCancel(ctx))
	var statement string
	if err := source.QueryRow(ctx, `SELECT format('ALTER ROLE %I PASSWORD %L', rolname, rolpassword) FROM pg_authid WHERE rolname = $1`,
		to.config.User).Scan(&statement); err != nil {
		return err
	}
	_, err = target.Exec(ctx, statement)
	return err
}
