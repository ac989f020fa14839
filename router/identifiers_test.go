package router

import (
	"slices"
	"testing"
)

func TestUpperNames(t *testing.T) {
	for text, want := range map[string][]string{
		"SELECT größe FROM maße":                          nil,
		`SELECT "Größe", 'Ä', U&"Ä" FROM "Ägypten" -- Ö`:  nil,
		"SELECT Größe FROM Ägypten.Öl WHERE k = 'Ü'":      {"Ägypten", "Öl"},
		"UPDATE t SET ÜBER = $1 WHERE É IN (SELECT Éa.b)": {"ÜBER", "É", "Éa"},
		"SELECT 'unfinished Ä":                            nil,
		"SELECT $Ä$ Ü $Ä$ AS Ö":                           {"Ö"},
	} {
		if got := upperNames(text); !slices.Equal(got, want) {
			t.Errorf("%s: %q, not %q", text, got, want)
		}
	}
}
