package catalog

import (
	"bytes"
	"testing"
)

// FuzzBuild checks that no row, however odd, breaks the reader.
func FuzzBuild(f *testing.F) {
	for _, row := range []string{
		"s 0,10\x00public", "r 16385 r p f f f distributed 3 1\x00public\x00t\x00me", "c 16385 1 20 t a - t\x00id\x00bigint",
		"e 16385 1 t\x00now()", "q 16385 1 16386 t\x00bigint", "u 16385 1 t t f f 1,0\x00t_pkey", "f 16385 1 16385 1 a a\x00fk",
		"i 16385 16385 1", "y 16390 d 20 0 t\x00public\x00dom\x00now()", "p 1 f v 0 f f f 20,25\x00public\x00f\x00sql\x00body",
	} {
		f.Add([]byte(row))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var rows [][][]byte
		for line := range bytes.SplitSeq(data, []byte{'\n'}) {
			values := bytes.SplitN(line, []byte{0}, loadColumns)
			rows = append(rows, append(values, make([][]byte, loadColumns-len(values))...))
		}
		c, err := build(rows, &builtin{functions: map[qualified]*Function{}})
		if err != nil {
			return
		}
		for _, table := range c.Tables() {
			table.KeyColumns()
			c.UsablePath([]string{table.Schema}, table.Owner)
		}
	})
}
