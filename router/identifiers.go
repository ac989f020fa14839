package router

import (
	"context"
	"slices"
	"strings"
	"unicode"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/sqltext"
)

// severalBytes are the encodings of servers in which PostgreSQL folds only ASCII letters of names. In all others it folds
// what the locale of the database calls upper-case, which the router's parser does not.
var severalBytes = []string{utf8Encoding, "EUC_JP", "EUC_CN", "EUC_KR", "EUC_TW", "EUC_JIS_2004", "MULE_INTERNAL"}

// knowsNames refuses a text with a name that its database reads otherwise than the router. Which ones these are is
// asked, never guessed.
func (s *session) knowsNames(ctx context.Context, text string) error {
	if sqltext.IsASCII(text) || slices.Contains(severalBytes, s.encodings.server) {
		return nil
	}
	names := upperNames(text)
	if len(names) == 0 {
		return nil
	}
	conn, err := s.router.service(ctx, s.router.view.Load().m.Home, s.database)
	if err != nil {
		return err
	}
	defer s.router.pool.Release(conn)
	for _, name := range names {
		rows, err := conn.Query(ctx, "SELECT (pg_catalog.parse_ident("+plan.QuoteLiteral(name)+"))[1]")
		if err != nil {
			return err
		}
		if string(rows[0][0]) != foldASCII(name) {
			return pgwire.Errorf(pgwire.CodeFeatureNotSupported, "the name %s has upper-case letters that this database folds by its locale", name).
				WithHint("Write it in double quotes: %s.", plan.QuoteIdent(string(rows[0][0])))
		}
	}
	return nil
}

// upperNames are the names without quotes in a text that have upper-case letters beyond ASCII, or, where the text is not
// UTF-8, bytes that could be one.
func upperNames(text string) (names []string) {
	scanned, err := pg.Scan(text)
	if err != nil {
		return nil // nor can it be parsed
	}
	for _, token := range scanned.Tokens {
		name := text[token.Start:token.End]
		if token.Token != pg.Token_IDENT || strings.Contains(name, `"`) {
			continue
		}
		if strings.ContainsFunc(name, func(r rune) bool { return r >= 0x80 && unicode.IsUpper(r) || r == unicode.ReplacementChar }) {
			names = append(names, name)
		}
	}
	return names
}

func foldASCII(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, name)
}
