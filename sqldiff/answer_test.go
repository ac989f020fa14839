package sqldiff

import (
	"fmt"
	"slices"
	"testing"
)

func rowsOf(rows ...string) *Answer {
	a := &Answer{Columns: []Column{{Name: "a", Type: 20}, {Name: "b", Type: 701}}, Tag: fmt.Sprint("SELECT ", len(rows))}
	for _, r := range rows {
		var x, y string
		_, _ = fmt.Sscan(r, &x, &y) // a missing field is empty
		row := [][]byte{[]byte(x), []byte(y)}
		if y == "NULL" {
			row[1] = nil
		}
		a.Rows = append(a.Rows, row)
	}
	return a
}

func TestCompare(t *testing.T) {
	base := rowsOf("1 10", "2 20", "2 NULL")
	other := func(edit func(*Answer)) *Answer {
		a := rowsOf("1 10", "2 20", "2 NULL")
		edit(a)
		return a
	}
	tests := []struct {
		name string
		got  *Answer
		how  how
		same bool
	}{
		{"itself", base, how{ordered: true}, true},
		{"another order", rowsOf("2 NULL", "2 20", "1 10"), how{}, true},
		{"another order, in order", rowsOf("2 NULL", "2 20", "1 10"), how{ordered: true}, false},
		{"ties in another order", rowsOf("1 10", "2 NULL", "2 20"), how{order: []int{0}}, true},
		{"ties, sorted by both", rowsOf("1 10", "2 NULL", "2 20"), how{order: []int{0, 1}}, false},
		{"unsorted", rowsOf("2 20", "1 10", "2 NULL"), how{order: []int{0}}, false},
		{"a row missing", rowsOf("1 10", "2 20"), how{}, false},
		{"a row twice", rowsOf("1 10", "2 20", "2 20"), how{}, false},
		{"empty for NULL", rowsOf("1 10", "2 20", "2 "), how{}, false},
		{"last digit", rowsOf("1 10.000000000001", "2 20", "2 NULL"), how{}, false},
		{"last digit, about", rowsOf("1 10.000000000001", "2 20", "2 NULL"), how{approx: true}, true},
		{"about, but no float", rowsOf("1.000000000001 10", "2 20", "2 NULL"), how{approx: true}, false},
		{"only counted", rowsOf("7 7", "8 8", "9 9"), how{count: true}, true},
		{"miscounted", rowsOf("7 7", "8 8"), how{count: true}, false},
		{"tag", other(func(a *Answer) { a.Tag = "SELECT 4" }), how{}, false},
		{"column name", other(func(a *Answer) { a.Columns[0].Name = "x" }), how{}, false},
		{"column type", other(func(a *Answer) { a.Columns[0].Type = 23 }), how{}, false},
		{"format", other(func(a *Answer) { a.Columns[1].Format = 1 }), how{}, false},
		{"typmod", other(func(a *Answer) { a.Columns[0].Mod = 4 }), how{}, false},
		{"typmod that an arm has", other(func(a *Answer) { a.Columns[0].Mod = 4 }), how{arms: true}, false},
		{"error", &Answer{Code: "22012"}, how{}, false},
		{"connection", &Answer{Broken: "gone"}, how{}, false},
		{"only runs", rowsOf("1 1"), how{runs: true}, true},
		{"only runs, but fails", &Answer{Code: "22012"}, how{runs: true}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if d := compare(base, tt.got, tt.how); (d == "") != tt.same {
				t.Errorf("the difference is %q", d)
			}
		})
	}
	precise := other(func(a *Answer) { a.Columns[0].Mod = 4 })
	plain := other(func(a *Answer) { a.Columns[0].Mod = -1 })
	if compare(precise, plain, how{}) == "" || compare(precise, plain, how{arms: true}) != "" || compare(plain, precise, how{arms: true}) == "" {
		t.Error("a type modifier may be missing, and only in a set operation")
	}
	if d := compare(&Answer{Code: "22012"}, &Answer{Code: "22003"}, how{}); d == "" {
		t.Error("one SQLSTATE is as good as another")
	}
}

func TestOrderOf(t *testing.T) {
	columns := []Column{{Name: "id"}, {Name: "n"}, {Name: "sum"}}
	tests := []struct {
		sql   string
		order []int
		total bool
	}{
		{"SELECT id, n, sum FROM t", nil, false},
		{"SELECT id, n, sum FROM t ORDER BY id", []int{0}, false},
		{"SELECT id, name AS n, sum(x) FROM t GROUP BY 1, 2 ORDER BY 2 DESC, id", []int{1, 0}, false},
		{"SELECT id, name AS n, sum(x) FROM t GROUP BY 1, 2 ORDER BY sum(x), n", []int{2, 1}, false},
		{"SELECT t.id, n, sum FROM t ORDER BY t.id", []int{0}, false},
		{"SELECT * FROM t ORDER BY t.n", []int{1}, false},
		{"SELECT * FROM t ORDER BY hidden", nil, true},
		{"SELECT * FROM t ORDER BY lower(n)", nil, true},
		{"SELECT id, n, sum FROM (SELECT * FROM t ORDER BY id) q", nil, false},
		{"SELECT 1 UNION SELECT 2 ORDER BY 1", []int{0}, false},
		{"COPY (SELECT id FROM t ORDER BY id) TO STDOUT", nil, true},
		{"COPY (SELECT id FROM t) TO STDOUT", nil, false},
		{"DELETE FROM t RETURNING id", nil, false},
	}
	for _, tt := range tests {
		order, total := orderOf(tt.sql, columns)
		if !slices.Equal(order, tt.order) || total != tt.total {
			t.Errorf("%s: %v, %v", tt.sql, order, total)
		}
	}
}
