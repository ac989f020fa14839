package catalog

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed bootstrap.sql
var bootstrapSQL string

// DefaultRouterRole is the role routers use for their own work on nodes.
const DefaultRouterRole = "pgshoal"

// Identity is what a node knows about itself.
type Identity struct {
	Cluster string // keyspace.Map.Cluster
	Name    string
	ID      int // keyspace.Node.ID: picks the node's block of every sequence
	Home    bool
}

// RouterRole is the role routers log in with for their own work; it is no superuser.
type RouterRole struct {
	Name     string // DefaultRouterRole when empty
	Verifier string // SCRAM-SHA-256$...; empty leaves the password of an existing role alone
}

func (r RouterRole) name() string {
	if r.Name == "" {
		return DefaultRouterRole
	}
	return r.Name
}

func (id Identity) validate() error {
	switch {
	case id.Cluster == "":
		return errors.New("a node's identity needs the cluster")
	case id.Name == "":
		return errors.New("a node's identity needs a name")
	case id.ID < 0 || id.ID > 32766:
		return fmt.Errorf("node id %d is outside 0 to 32766, the number of sequence blocks", id.ID)
	}
	return nil
}

// BootstrapNode makes a PostgreSQL server a node: it checks the server, creates the routers' role and
// installs pg_shoal in every database that accepts connections, template1 included. It is
// idempotent. The admin configuration is a superuser's. When like is given, the server must sort and
// encode text as that one does. Warnings are sentences about what works but could be better.
func BootstrapNode(ctx context.Context, admin *pgx.ConnConfig, id Identity, router RouterRole, like *Locale) (warnings []string, err error) {
	if err := id.validate(); err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, admin)
	if err != nil {
		return nil, fmt.Errorf("bootstrap node %s: %w", id.Name, err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	warnings, err = checkServer(ctx, conn, like)
	if err != nil {
		return nil, fmt.Errorf("bootstrap node %s: %w", id.Name, err)
	}
	databases, err := connectable(ctx, conn)
	if err != nil {
		return nil, fmt.Errorf("bootstrap node %s: %w", id.Name, err)
	}
	for _, database := range databases {
		if err := bootstrapDatabase(ctx, admin, database, id, router); err != nil {
			return nil, fmt.Errorf("bootstrap node %s, database %s: %w", id.Name, database, err)
		}
	}
	return warnings, nil
}

func bootstrapDatabase(ctx context.Context, admin *pgx.ConnConfig, database string, id Identity, router RouterRole) error {
	conn, err := connectTo(ctx, admin, database)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return Bootstrap(ctx, conn, id, router)
}

// connectTo opens a database of the server that config leads to.
func connectTo(ctx context.Context, config *pgx.ConnConfig, database string) (*pgx.Conn, error) {
	config = config.Copy()
	config.Database = database
	return pgx.ConnectConfig(ctx, config)
}

// connectable lists the databases that accept connections.
func connectable(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	rows, err := conn.Query(ctx, `SELECT datname FROM pg_database WHERE datallowconn ORDER BY datname`)
	if err != nil {
		return nil, fmt.Errorf("list databases: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// Bootstrap installs or upgrades pg_shoal in the database of a superuser's connection, all or nothing.
func Bootstrap(ctx context.Context, conn *pgx.Conn, id Identity, router RouterRole) error {
	if err := id.validate(); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		// One at a time: two controllers may bootstrap the same node at once.
		const prepare = `SELECT pg_advisory_xact_lock(hashtextextended('pg_shoal bootstrap', 0))`
		if _, err := tx.Exec(ctx, prepare); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		if err := ensureRouterRole(ctx, tx, router); err != nil {
			return err
		}
		if err := applySteps(ctx, tx, router.name()); err != nil {
			return err
		}
		return setIdentity(ctx, tx, id)
	})
}

func ensureRouterRole(ctx context.Context, tx pgx.Tx, router RouterRole) error {
	name := quoteIdent(router.name())
	var stored *string
	var super bool
	err := tx.QueryRow(ctx, `SELECT rolpassword, rolsuper OR NOT rolcanlogin FROM pg_authid WHERE rolname = $1`,
		router.name()).Scan(&stored, &super)
	var statements []string
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		statements = append(statements, "CREATE ROLE "+name+" LOGIN NOSUPERUSER")
	case err != nil:
		return fmt.Errorf("look up role %s: %w", name, err)
	case super:
		statements = append(statements, "ALTER ROLE "+name+" LOGIN NOSUPERUSER")
	}
	if router.Verifier != "" && (stored == nil || *stored != router.Verifier) {
		if !strings.HasPrefix(router.Verifier, "SCRAM-SHA-256$") {
			return fmt.Errorf("the verifier of role %s is not a SCRAM-SHA-256 verifier", name)
		}
		statements = append(statements, "ALTER ROLE "+name+" PASSWORD "+quoteLiteral(router.Verifier))
	}
	var connects bool
	for _, s := range statements {
		if _, err := tx.Exec(ctx, s); err != nil {
			return fmt.Errorf("set up role %s: %w", name, err)
		}
	}
	if err := tx.QueryRow(ctx, `SELECT has_database_privilege($1, current_database(), 'CONNECT')`,
		router.name()).Scan(&connects); err != nil || connects {
		return err
	}
	_, err = tx.Exec(ctx, `DO $$ BEGIN EXECUTE format('GRANT CONNECT ON DATABASE %I TO `+
		strings.ReplaceAll(name, "%", "%%")+`', current_database()); END $$`)
	return err
}

// step is one numbered part of bootstrap.sql.
type step struct {
	number int
	sql    string
	digest string
}

var stepLine = regexp.MustCompile(`(?m)^-- step (\d+)$`)

func steps(router string) ([]step, error) {
	replacer := strings.NewReplacer("{router}", quoteIdent(router), "{router_literal}", quoteLiteral(router))
	marks := stepLine.FindAllStringSubmatchIndex(bootstrapSQL, -1)
	list := make([]step, 0, len(marks))
	for i, m := range marks {
		end := len(bootstrapSQL)
		if i+1 < len(marks) {
			end = marks[i+1][0]
		}
		n, err := strconv.Atoi(bootstrapSQL[m[2]:m[3]])
		if err != nil || n != i+1 {
			return nil, fmt.Errorf("bootstrap.sql: step %q is out of order", bootstrapSQL[m[2]:m[3]])
		}
		text := bootstrapSQL[m[1]:end]
		list = append(list, step{n, replacer.Replace(text), fmt.Sprintf("%x", sha256.Sum256([]byte(text)))})
	}
	return list, nil
}

// applySteps runs the steps this database does not have yet.
func applySteps(ctx context.Context, tx pgx.Tx, router string) error {
	applied, err := installedStep(ctx, tx)
	if err != nil {
		return err
	}
	list, err := steps(router)
	if err != nil {
		return err
	}
	if applied > len(list) {
		return fmt.Errorf("its pg_shoal schema is version %d, this pgshoal knows %d; use a newer pgshoal", applied, len(list))
	}
	if err := checkDigests(ctx, tx, list[:applied]); err != nil {
		return err
	}
	for _, s := range list[applied:] {
		// The server reserves names that begin with pg_ for itself unless told otherwise.
		script := "SET LOCAL allow_system_table_mods = on; SET LOCAL client_min_messages = warning;\n" + s.sql
		if _, err := tx.Conn().PgConn().Exec(ctx, script).ReadAll(); err != nil {
			return fmt.Errorf("install pg_shoal, step %d: %w", s.number, err)
		}
		if _, err := tx.Exec(ctx, `INSERT INTO pg_shoal.version (step, digest) VALUES ($1, $2)`, s.number, s.digest); err != nil {
			return fmt.Errorf("record step %d: %w", s.number, err)
		}
	}
	return nil
}

// ErrOtherBuild says that pg_shoal was installed by a build whose steps are not this one's. No released
// step changes, so one of the two builds was never released.
var ErrOtherBuild = errors.New("its pg_shoal schema was installed by a development build of pgshoal and cannot be upgraded")

// checkDigests makes sure that the installed steps are those of this build.
func checkDigests(ctx context.Context, tx pgx.Tx, list []step) error {
	if len(list) == 0 {
		return nil
	}
	var known bool
	if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'pg_shoal.version'::regclass AND attname = 'digest')`).Scan(&known); err != nil {
		return fmt.Errorf("look at the version of pg_shoal: %w", err)
	}
	if !known {
		return ErrOtherBuild
	}
	for _, s := range list {
		var digest string
		if err := tx.QueryRow(ctx, `SELECT digest FROM pg_shoal.version WHERE step = $1`, s.number).Scan(&digest); err != nil {
			return fmt.Errorf("read step %d of pg_shoal: %w", s.number, err)
		}
		if digest != s.digest {
			return fmt.Errorf("%w (step %d differs)", ErrOtherBuild, s.number)
		}
	}
	return nil
}

func installedStep(ctx context.Context, tx pgx.Tx) (int, error) {
	var exists bool
	if err := tx.QueryRow(ctx, `SELECT to_regclass('pg_shoal.version') IS NOT NULL`).Scan(&exists); err != nil {
		return 0, fmt.Errorf("look for pg_shoal: %w", err)
	}
	if !exists {
		return 0, nil
	}
	var applied int
	if err := tx.QueryRow(ctx, `SELECT coalesce(max(step), 0) FROM pg_shoal.version`).Scan(&applied); err != nil {
		return 0, fmt.Errorf("read the version of pg_shoal: %w", err)
	}
	return applied, nil
}

func setIdentity(ctx context.Context, tx pgx.Tx, id Identity) error {
	var is Identity
	err := tx.QueryRow(ctx, `SELECT cluster, name, id, home FROM pg_shoal.node`).Scan(&is.Cluster, &is.Name, &is.ID, &is.Home)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		_, err = tx.Exec(ctx, `INSERT INTO pg_shoal.node VALUES ($1, $2, $3, $4)`, id.Cluster, id.Name, id.ID, id.Home)
	case err != nil:
		return fmt.Errorf("read the node's identity: %w", err)
	case is.Cluster != id.Cluster:
		return fmt.Errorf("the server belongs to cluster %q already (as node %s); use another server, "+
			"or run DROP SCHEMA pg_shoal CASCADE in all its databases if that cluster is gone", is.Cluster, is.Name)
	case is.Name != id.Name || is.ID != id.ID:
		return fmt.Errorf("the server is node %s with id %d of this cluster already, not %s with id %d; "+
			"add it under its own name, or use another server", is.Name, is.ID, id.Name, id.ID)
	case is.Home != id.Home:
		_, err = tx.Exec(ctx, `UPDATE pg_shoal.node SET home = $1`, id.Home)
	}
	if err != nil {
		return fmt.Errorf("set the node's identity: %w", err)
	}
	return nil
}

// ReadIdentity returns who the node is; ok is false when the server is not a node.
func ReadIdentity(ctx context.Context, conn *pgx.Conn) (id Identity, ok bool, err error) {
	var exists bool
	if err := conn.QueryRow(ctx, `SELECT to_regclass('pg_shoal.node') IS NOT NULL`).Scan(&exists); err != nil || !exists {
		return Identity{}, false, err
	}
	err = conn.QueryRow(ctx, `SELECT cluster, name, id, home FROM pg_shoal.node`).Scan(&id.Cluster, &id.Name, &id.ID, &id.Home)
	if errors.Is(err, pgx.ErrNoRows) {
		return Identity{}, false, nil
	}
	return id, err == nil, err
}

func quoteIdent(name string) string { return pgx.Identifier{name}.Sanitize() }

// quoteLiteral is right whatever standard_conforming_strings is.
func quoteLiteral(s string) string {
	quoted := "'" + strings.ReplaceAll(s, "'", "''") + "'"
	if strings.Contains(s, `\`) {
		return " E" + strings.ReplaceAll(quoted, `\`, `\\`)
	}
	return quoted
}
