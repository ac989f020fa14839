package sqldiff

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// firstUserOID is where OIDs begin that differ from server to server.
const firstUserOID = 16384

// float4OID and float8OID are the types whose last digits depend on the order of additions.
const (
	float4OID = 700
	float8OID = 701
)

// featureNotSupported is the SQLSTATE of a refusal.
const featureNotSupported = "0A000"

// Answer is everything that a client sees of one statement.
type Answer struct {
	Columns []Column
	Rows    [][][]byte
	Tag     string
	// Parameters are the types of the statement's parameters, when it was prepared.
	Parameters []uint32
	// Code is the SQLSTATE of an error; Message says more and is not compared.
	Code, Message string
	// Copied is what COPY TO STDOUT wrote.
	Copied string
	// Broken is an error of the connection itself: never right.
	Broken string
}

// Column is what the row description says.
type Column struct {
	Name   string
	Type   uint32
	Mod    int32
	Format int16
}

// refused reports an answer that the cluster owes.
func (a *Answer) refused(want *Answer) bool {
	return a.Broken == "" && a.Code == featureNotSupported && want.Code != featureNotSupported
}

// how says how rows are compared.
type how struct {
	ordered bool  // all rows in this order
	order   []int // otherwise: these columns in this order
	approx  bool
	count   bool
	runs    bool
	// arms is set for statements with set operations. PostgreSQL describes rows by the finished plan, and when that
	// plan needs only one arm (the other has WHERE false), they have that arm's type modifier; the statement itself, which a router
	// describes, has none. The types are the same, so that no driver reads a value in another way.
	arms bool
}

var setOperation = regexp.MustCompile(`(?i)\b(union|intersect|except)\b`)

// compare returns the first difference in words, or nothing.
func compare(want, got *Answer, h how) string {
	switch {
	case got.Broken != "":
		return "the connection failed: " + got.Broken
	case want.Code == "0A000" && got.Code == "":
		return "" // what PostgreSQL does not support in one plan may be possible in another, a FULL JOIN for example
	case want.Code != got.Code:
		return fmt.Sprintf("SQLSTATE %s instead of %s", orNone(got.Code), orNone(want.Code))
	case want.Code != "" || h.runs:
		return ""
	case want.Tag != got.Tag:
		return fmt.Sprintf("command tag %q instead of %q", got.Tag, want.Tag)
	case h.count && len(want.Rows) != len(got.Rows):
		return fmt.Sprintf("%d rows instead of %d", len(got.Rows), len(want.Rows))
	}
	if d := compareColumns(want, got, h); d != "" || h.count {
		return d
	}
	if want.Copied != got.Copied {
		if d := compareCopied(want.Copied, got.Copied, h); d != "" {
			return d
		}
	}
	if d := compareRows(want, got, h); d != "" {
		return d
	}
	return compareFormats(want, got)
}

// compareFormats comes last, so that a wrong description does not hide wrong rows.
func compareFormats(want, got *Answer) string {
	for i, w := range want.Columns {
		if g := got.Columns[i]; w.Format != g.Format {
			return fmt.Sprintf("column %d is described with format %d instead of %d", i+1, g.Format, w.Format)
		}
	}
	return ""
}

func orNone(code string) string {
	if code == "" {
		return "success"
	}
	return code
}

func compareColumns(want, got *Answer, h how) string {
	if len(want.Columns) != len(got.Columns) {
		return fmt.Sprintf("%d columns instead of %d", len(got.Columns), len(want.Columns))
	}
	for i, w := range want.Columns {
		g := got.Columns[i]
		g.Format = w.Format // compared after the rows
		if h.arms && g.Mod == -1 {
			g.Mod = w.Mod
		}
		if w.Type >= firstUserOID && g.Type >= firstUserOID {
			g.Type = w.Type
		}
		if w != g {
			return fmt.Sprintf("column %d is %+v instead of %+v", i+1, g, w)
		}
	}
	if !slices.EqualFunc(want.Parameters, got.Parameters, func(w, g uint32) bool { return w == g || w >= firstUserOID && g >= firstUserOID }) {
		return fmt.Sprintf("parameter types %v instead of %v", got.Parameters, want.Parameters)
	}
	return ""
}

func compareCopied(want, got string, h how) string {
	w, g := strings.SplitAfter(want, "\n"), strings.SplitAfter(got, "\n")
	if !h.ordered {
		slices.Sort(w)
		slices.Sort(g)
	}
	if !slices.Equal(w, g) {
		return "COPY wrote other lines"
	}
	return ""
}

func compareRows(want, got *Answer, h how) string {
	if len(want.Rows) != len(got.Rows) {
		return fmt.Sprintf("%d rows instead of %d", len(got.Rows), len(want.Rows))
	}
	same := func(a, b []byte, column int) bool {
		return (a == nil) == (b == nil) && (bytes.Equal(a, b) || h.approx && near(a, b, want.Columns[column]))
	}
	for i := range want.Rows {
		for _, c := range h.order {
			if !same(want.Rows[i][c], got.Rows[i][c], c) {
				return fmt.Sprintf("row %d is out of order: column %q", i+1, want.Columns[c].Name)
			}
		}
	}
	w, g := want.Rows, got.Rows
	if !h.ordered {
		w, g = slices.SortedFunc(slices.Values(w), byBytes), slices.SortedFunc(slices.Values(g), byBytes)
	}
	for i := range w {
		for c := range w[i] {
			if !same(w[i][c], g[i][c], c) {
				return fmt.Sprintf("other rows, first by column %q: %s instead of %s", want.Columns[c].Name, show(g[i][c]), show(w[i][c]))
			}
		}
	}
	return ""
}

// byBytes puts rows into some order that both sides share; NULL comes before everything.
func byBytes(a, b [][]byte) int {
	for i := range a {
		switch {
		case a[i] == nil && b[i] == nil:
		case a[i] == nil:
			return -1
		case b[i] == nil:
			return 1
		}
		if c := bytes.Compare(a[i], b[i]); c != 0 {
			return c
		}
	}
	return 0
}

// near compares floating-point numbers but for their last digits.
func near(a, b []byte, c Column) bool {
	x, ok := float(a, c)
	y, also := float(b, c)
	return ok && also && (x == y || math.Abs(x-y) <= 1e-9*max(math.Abs(x), math.Abs(y)))
}

func float(v []byte, c Column) (float64, bool) {
	if c.Type != float8OID && c.Type != float4OID {
		return 0, false
	}
	if c.Format == 1 && c.Type == float8OID && len(v) == 8 {
		return math.Float64frombits(binary.BigEndian.Uint64(v)), true
	}
	f, err := strconv.ParseFloat(string(v), 64)
	return f, err == nil && c.Format == 0
}

func show(v []byte) string {
	if v == nil {
		return "NULL"
	}
	return strconv.Quote(string(v))
}

// String prints an answer for the report.
func (a *Answer) String() string {
	const most = 12
	var b strings.Builder
	switch {
	case a.Broken != "":
		return "connection: " + a.Broken + "\n"
	case a.Code != "":
		return "ERROR " + a.Code + ": " + a.Message + "\n"
	}
	for _, c := range a.Columns {
		fmt.Fprintf(&b, "| %s %d/%d ", c.Name, c.Type, c.Mod)
	}
	fmt.Fprintf(&b, "%s\n", a.Tag)
	for i, row := range a.Rows {
		if i == most {
			fmt.Fprintf(&b, "... %d more\n", len(a.Rows)-most)
			break
		}
		for _, v := range row {
			b.WriteString("| " + show(v) + " ")
		}
		b.WriteString("\n")
	}
	if len(a.Copied) > 400 {
		return b.String() + a.Copied[:400] + "...\n"
	}
	return b.String() + a.Copied
}
