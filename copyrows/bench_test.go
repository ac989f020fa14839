package copyrows

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
)

func benchData(o Options) []byte {
	var out bytes.Buffer
	if o.Format == Binary {
		out.WriteString(signature + "\x00\x00\x00\x00\x00\x00\x00\x00")
	}
	for i := range 10_000 {
		switch {
		case o.Format == Binary:
			out.Write([]byte{0, 3, 0, 0, 0, 8})
			out.Write(binary.BigEndian.AppendUint64(nil, uint64(i)))
			out.WriteString("\x00\x00\x00\x09some text\x00\x00\x00\x041234")
		case o.Format == CSV && o.Escape != 0:
			fmt.Fprintf(&out, "%d,\"some text\",\"12\"\"34\"\n", i)
		case o.Format == CSV:
			fmt.Fprintf(&out, "%d,some text,1234\n", i)
		case o.Null != nil:
			fmt.Fprintf(&out, "%d\tsome\\ttext\t1234\n", i)
		default:
			fmt.Fprintf(&out, "%d\tsome text\t1234\n", i)
		}
	}
	return out.Bytes()
}

func BenchmarkSplitter(b *testing.B) {
	for name, o := range map[string]Options{
		"text": {}, "text escapes": {Null: new(`\N`)}, "csv": {Format: CSV}, "csv quotes": {Format: CSV, Escape: '"'}, "binary": {Format: Binary},
	} {
		o.Columns, o.KeyColumns = []string{"a", "b", "c"}, []int{0}
		data := benchData(o)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(data)))
			rows := 0
			emit := func(row []byte, key [][]byte) error { rows += len(key); return nil }
			for b.Loop() {
				s, err := New(o)
				if err != nil {
					b.Fatal(err)
				}
				for rest := data; len(rest) > 0; {
					n := min(len(rest), 16<<10)
					if err := s.Write(rest[:n], emit); err != nil {
						b.Fatal(err)
					}
					rest = rest[n:]
				}
			}
			b.ReportMetric(float64(rows)/b.Elapsed().Seconds()/1e6, "Mrows/s")
		})
	}
}

func TestNoAllocationPerRow(t *testing.T) {
	for _, o := range []Options{{}, {Null: new(`\N`)}, {Format: CSV}, {Format: CSV, Escape: '"'}, {Format: Binary}} {
		o.Columns, o.KeyColumns = []string{"a", "b", "c"}, []int{0, 1}
		data := benchData(o)
		s, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		emit := func([]byte, [][]byte) error { return nil }
		if err := s.Write(data, emit); err != nil {
			t.Fatal(err)
		}
		data = data[len(s.Prologue()):]
		if n := testing.AllocsPerRun(3, func() { err = s.Write(data, emit) }); n > 0 || err != nil {
			t.Errorf("format %d: %v allocations for 10,000 rows, %v", o.Format, n, err)
		}
	}
}
