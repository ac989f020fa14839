package analyze

import (
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
)

// CopyQuery is the query of COPY (query) TO, where it stands in the text: blanks are in the place of everything else, so that
// positions in it are those of the text.
func CopyQuery(text string) (string, bool) {
	scanned, err := pg.Scan(text)
	if err != nil {
		return "", false
	}
	tokens := slices.DeleteFunc(scanned.Tokens, func(t *pg.ScanToken) bool {
		return t.Token == pg.Token_SQL_COMMENT || t.Token == pg.Token_C_COMMENT
	})
	if len(tokens) < 2 || tokens[0].Token != pg.Token_COPY || tokens[1].Token != pg.Token_ASCII_40 {
		return "", false
	}
	depth := 0
	for _, t := range tokens {
		switch t.Token {
		case pg.Token_ASCII_40:
			depth++
		case pg.Token_ASCII_41:
			if depth--; depth == 0 {
				begin := int(tokens[1].End)
				return blank(text[:begin]) + text[begin:t.Start], true
			}
		}
	}
	return "", false
}

// blank keeps lines and characters, which positions count.
func blank(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' {
			return r
		}
		return ' '
	}, text)
}
