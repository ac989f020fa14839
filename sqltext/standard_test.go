package sqltext_test

import (
	"testing"

	"github.com/pgshoal/pgshoal/sqltext"
)

func TestStandard(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]string{
		`SELECT 'plain', "a\b"`:                 `SELECT 'plain', "a\b"`,
		`SELECT 'a\'b', 'c' -- it's \`:          `SELECT  E'a\'b', 'c' -- it's \`,
		`SELECT date'\062020', E'\t', $$\$$`:    `SELECT date E'\062020', E'\t', $$\$$`,
		"SELECT 'a'\n'\\'', n'\\x', X'1f', 'd'": "SELECT  E'a'\n'\\'', pg_catalog.bpchar E'\\x', X'1f', 'd'",
		`SELECT 'open\`:                         `SELECT 'open\`,
	} {
		if got := string(sqltext.Standard([]byte(sql))); got != want {
			t.Errorf("%s\nbecomes\n%s\nnot\n%s", sql, got, want)
		}
	}
}
