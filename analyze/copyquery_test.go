package analyze_test

import (
	"testing"

	"github.com/pgshoal/pgshoal/analyze"
)

func TestCopyQuery(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"COPY (SELECT ')' FROM (TABLE t) u) TO STDOUT (FORMAT csv)": "      SELECT ')' FROM (TABLE t) u",
		"/* é */\ncopy (TABLE t) TO STDOUT":                         "       \n      TABLE t",
		"copy\n(TABLE t) TO STDOUT":                                 "    \n TABLE t",
		"COPY t (a) TO STDOUT":                                      "",
		"COPY (":                                                    "",
	} {
		if got, ok := analyze.CopyQuery(text); got != want || ok != (want != "") {
			t.Errorf("the query of %q is %q", text, got)
		}
	}
}
