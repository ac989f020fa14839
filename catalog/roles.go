package catalog

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// rolesSQL writes, on the source, the statements that make the target's roles the same. A role
// that exists is altered. Roles of the server itself (pg_...) are there already.
const rolesSQL = `
SELECT 1, rolname, format('DO $do$ BEGIN CREATE ROLE %I; EXCEPTION WHEN duplicate_object THEN NULL; END $do$', rolname)
FROM pg_authid WHERE rolname !~ '^pg_'
UNION ALL
SELECT 2, rolname, format('ALTER ROLE %I WITH %s %s %s %s %s %s %s CONNECTION LIMIT %s VALID UNTIL %L', rolname,
    CASE WHEN rolsuper THEN 'SUPERUSER' ELSE 'NOSUPERUSER' END, CASE WHEN rolinherit THEN 'INHERIT' ELSE 'NOINHERIT' END,
    CASE WHEN rolcreaterole THEN 'CREATEROLE' ELSE 'NOCREATEROLE' END, CASE WHEN rolcreatedb THEN 'CREATEDB' ELSE 'NOCREATEDB' END,
    CASE WHEN rolcanlogin THEN 'LOGIN' ELSE 'NOLOGIN' END, CASE WHEN rolreplication THEN 'REPLICATION' ELSE 'NOREPLICATION' END,
    CASE WHEN rolbypassrls THEN 'BYPASSRLS' ELSE 'NOBYPASSRLS' END, rolconnlimit, coalesce(rolvaliduntil, 'infinity'))
FROM pg_authid WHERE rolname !~ '^pg_'
UNION ALL
SELECT 3, rolname, format('ALTER ROLE %I PASSWORD %L', rolname, rolpassword) FROM pg_authid WHERE rolname !~ '^pg_'
UNION ALL
SELECT 4, m.rolname, format('GRANT %I TO %I', g.rolname, m.rolname) ||
    -- PostgreSQL 16 has more options.
    CASE WHEN to_jsonb(a) ? 'set_option'
        THEN format(' WITH ADMIN %s, INHERIT %s, SET %s', a.admin_option::text, to_jsonb(a) ->> 'inherit_option', to_jsonb(a) ->> 'set_option')
        WHEN a.admin_option THEN ' WITH ADMIN OPTION' ELSE '' END
FROM pg_auth_members a JOIN pg_authid g ON g.oid = a.roleid JOIN pg_authid m ON m.oid = a.member WHERE m.rolname !~ '^pg_'
UNION ALL
SELECT 5, rolname, format('COMMENT ON ROLE %I IS %L', rolname, shobj_description(oid, 'pg_authid'))
FROM pg_authid WHERE rolname !~ '^pg_' AND shobj_description(oid, 'pg_authid') IS NOT NULL
ORDER BY 1, 2, 3`

// copyRoles makes the roles of the target those of the source, passwords included, so that a
// router can log in to both with what the client proved.
func copyRoles(ctx context.Context, from, to *pgx.Conn) (warnings []string, err error) {
	rows, err := from.Query(ctx, rolesSQL)
	if err != nil {
		return nil, fmt.Errorf("read the roles: %w", err)
	}
	type statement struct {
		Rank      int
		Role, SQL string
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[statement])
	if err != nil {
		return nil, fmt.Errorf("read the roles: %w", err)
	}
	admin := to.Config().User
	keep, err := adminPasswordDiffers(ctx, from, to)
	if err != nil {
		return nil, err
	}
	if keep {
		warnings = append(warnings, fmt.Sprintf("role %s has another password on this node than on the home node and keeps it: "+
			"clients that log in as %s reach this node only after the two are made the same", admin, admin))
	}
	err = pgx.BeginFunc(ctx, to, func(tx pgx.Tx) error {
		for _, s := range list {
			if keep && s.Rank == 3 && s.Role == admin {
				continue
			}
			if _, err := tx.Exec(ctx, s.SQL, pgx.QueryExecModeSimpleProtocol); err != nil {
				return fmt.Errorf("copy role %s: %w", s.Role, err)
			}
		}
		return nil
	})
	return warnings, err
}

// adminPasswordDiffers tells whether the source's password of the administrator would lock out the
// connection string the target was given with.
func adminPasswordDiffers(ctx context.Context, from, to *pgx.Conn) (bool, error) {
	given := to.Config().Password
	if given == "" {
		return false, nil // the target lets the administrator in without one
	}
	var verifier *string
	if err := from.QueryRow(ctx, `SELECT rolpassword FROM pg_authid WHERE rolname = $1`, to.Config().User).Scan(&verifier); err != nil {
		return false, fmt.Errorf("read role %s: %w", to.Config().User, err)
	}
	return verifier == nil || !verifies(*verifier, given), nil
}

// verifies tells whether a SCRAM verifier is one of this password.
func verifies(verifier, password string) bool {
	parts := strings.FieldsFunc(verifier, func(r rune) bool { return r == '$' || r == ':' })
	if len(parts) != 5 || parts[0] != "SCRAM-SHA-256" {
		return false
	}
	iterations, err := strconv.Atoi(parts[1])
	if err != nil || iterations < 1 {
		return false
	}
	salt, err := base64.StdEncoding.DecodeString(parts[2])
	if err != nil {
		return false
	}
	salted, err := pbkdf2.Key(sha256.New, password, salt, iterations, sha256.Size)
	if err != nil {
		return false
	}
	client := hmac.New(sha256.New, salted)
	client.Write([]byte("Client Key"))
	stored := sha256.Sum256(client.Sum(nil))
	return base64.StdEncoding.EncodeToString(stored[:]) == parts[3]
}

// copySettings makes what ALTER ROLE ... SET and ALTER DATABASE ... SET did; it needs the databases.
func copySettings(ctx context.Context, from, to *pgx.Conn) error {
	rows, err := from.Query(ctx, `
		SELECT CASE WHEN setrole = 0 AND setdatabase <> 0 THEN format('ALTER DATABASE %I', datname)
				WHEN setdatabase = 0 THEN 'ALTER ROLE ' || coalesce(quote_ident(rolname), 'ALL')
				ELSE format('ALTER ROLE %I IN DATABASE %I', rolname, datname) END,
			split_part(v, '=', 1), substr(v, strpos(v, '=') + 1)
		FROM pg_db_role_setting s LEFT JOIN pg_database d ON d.oid = setdatabase LEFT JOIN pg_roles r ON r.oid = setrole, unnest(setconfig) v
		ORDER BY 1, 2`)
	if err != nil {
		return fmt.Errorf("read the settings of roles and databases: %w", err)
	}
	type setting struct{ Target, Name, Value string }
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[setting])
	if err != nil {
		return fmt.Errorf("read the settings of roles and databases: %w", err)
	}
	// These are stored as lists of quoted names; quoting them again would make one name of all.
	lists := []string{
		"local_preload_libraries", "search_path", "session_preload_libraries", "shared_preload_libraries",
		"temp_tablespaces", "unix_socket_directories",
	}
	for _, s := range list {
		value := quoteLiteral(s.Value)
		if slices.Contains(lists, strings.ToLower(s.Name)) {
			value = s.Value
		}
		if _, err := to.Exec(ctx, s.Target+" SET "+pgx.Identifier(strings.Split(s.Name, ".")).Sanitize()+" = "+value,
			pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("%s SET %s: %w", s.Target, s.Name, err)
		}
	}
	return nil
}
