package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const oldestServer = 150000

// Locale is how a server's new databases encode and sort text.
type Locale struct {
	Encoding string
	Collate  string
	Ctype    string
	Provider string // pg_database.datlocprovider: c libc, i ICU, b built in
	ICU      string // the ICU or built-in locale
	Version  string // of the collation: a different one may sort differently
}

// ReadLocale reads the locale of template1, which databases are made from.
func ReadLocale(ctx context.Context, conn *pgx.Conn) (Locale, error) {
	var l Locale
	// The ICU locale's column was renamed in PostgreSQL 17, so it is read by name from JSON.
	err := conn.QueryRow(ctx, `
		SELECT pg_encoding_to_char(encoding), datcollate, datctype, datlocprovider::text,
			coalesce(to_jsonb(d) ->> 'datlocale', to_jsonb(d) ->> 'daticulocale', ''),
			coalesce(pg_database_collation_actual_version(oid), '')
		FROM pg_database d WHERE datname = 'template1'`).
		Scan(&l.Encoding, &l.Collate, &l.Ctype, &l.Provider, &l.ICU, &l.Version)
	if err != nil {
		return Locale{}, fmt.Errorf("read the locale: %w", err)
	}
	return l, nil
}

// checkServer tells whether a server can be a node.
func checkServer(ctx context.Context, conn *pgx.Conn, like *Locale) (warnings []string, err error) {
	var version, prepared int
	var versionText, wal string
	var super, recovering bool
	if err := conn.QueryRow(ctx, `
		SELECT current_setting('server_version_num')::int, current_setting('server_version'),
			current_setting('max_prepared_transactions')::int, current_setting('wal_level'),
			(SELECT rolsuper FROM pg_roles WHERE rolname = current_user), pg_is_in_recovery()`).
		Scan(&version, &versionText, &prepared, &wal, &super, &recovering); err != nil {
		return nil, fmt.Errorf("read the server's settings: %w", err)
	}
	switch {
	case version < oldestServer:
		return nil, fmt.Errorf("the server is PostgreSQL %s, pgshoal needs 15 or newer; upgrade it", versionText)
	case recovering:
		return nil, errors.New("the server is a standby; give the address of the primary")
	case !super:
		return nil, fmt.Errorf("role %q is not a superuser; give the connection string of one", conn.Config().User)
	case prepared == 0:
		return nil, errors.New("max_prepared_transactions is 0, two-phase commit needs it; " +
			"run ALTER SYSTEM SET max_prepared_transactions = 200 and restart the server")
	}
	if wal != "logical" {
		warnings = append(warnings, fmt.Sprintf("wal_level is %s: shards can move from or to this node only after "+
			"ALTER SYSTEM SET wal_level = logical and a restart", wal))
	}
	if like == nil {
		return warnings, nil
	}
	is, err := ReadLocale(ctx, conn)
	if err != nil {
		return nil, err
	}
	if err := is.sameAs(*like); err != nil {
		return nil, err
	}
	if is.Version != like.Version {
		warnings = append(warnings, fmt.Sprintf("the version of the collation is %q, the home node's is %q: text may sort differently; "+
			"run both on the same release of the operating system", is.Version, like.Version))
	}
	return warnings, nil
}

func (l Locale) sameAs(home Locale) error {
	for _, c := range []struct{ what, is, want string }{
		{"server_encoding", l.Encoding, home.Encoding},
		{"locale provider", l.Provider, home.Provider},
		{"lc_collate", l.Collate, home.Collate},
		{"lc_ctype", l.Ctype, home.Ctype},
		{"ICU locale", l.ICU, home.ICU},
	} {
		if c.is != c.want {
			return fmt.Errorf("its %s is %q, the home node's is %q: text would sort or hash differently; "+
				"initialise the server with initdb --encoding=%s --lc-collate=%s --lc-ctype=%s",
				c.what, c.is, c.want, home.Encoding, home.Collate, home.Ctype)
		}
	}
	return nil
}
