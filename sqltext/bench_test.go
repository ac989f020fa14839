package sqltext

import (
	"strings"
	"testing"
)

func statements() map[string]string {
	return map[string]string{
		"point":  "SELECT abalance FROM pgbench_accounts WHERE aid = 734213",
		"join":   "SELECT o.id, c.name, sum(i.price * i.quantity) AS total FROM orders o JOIN customers c ON c.id = o.customer_id AND c.tenant = o.tenant JOIN items i ON i.order_id = o.id WHERE o.tenant = 'acme' AND o.created_at >= '2024-01-01' GROUP BY 1, 2 ORDER BY total DESC LIMIT 10",
		"insert": "INSERT INTO t (a, b, c) VALUES " + strings.Repeat("(12345, 'some text', 1.5), ", 99) + "(1, 'x', 2.5)",
	}
}

func BenchmarkNormalize(b *testing.B) {
	for name, sql := range statements() {
		b.Run(name, func(b *testing.B) {
			var n Normalized
			text := []byte(sql)
			b.ReportAllocs()
			b.SetBytes(int64(len(sql)))
			for b.Loop() {
				if !Normalize(&n, text, true) {
					b.Fatal("refused")
				}
			}
		})
	}
}

func BenchmarkFirstKeyword(b *testing.B) {
	text := []byte("  /* app */ commit")
	b.ReportAllocs()
	for b.Loop() {
		if FirstKeyword(text) != "COMMIT" {
			b.Fatal("wrong")
		}
	}
}

func TestNoAllocations(t *testing.T) {
	var n Normalized
	scratch := make([]byte, 0, 64)
	sql := []byte("Select * From t Where a = 1 And b = 'it''s' And c = E'x\\n' And d = 0x1F And e = $$q$$ -- end")
	Normalize(&n, sql, true)
	got := testing.AllocsPerRun(100, func() {
		if !Normalize(&n, sql, true) || FirstKeyword(sql) != "SELECT" {
			t.Fatal("refused")
		}
		for _, l := range n.Literals {
			if _, ok := l.Value(sql, scratch); !ok {
				t.Fatal("no value")
			}
		}
	})
	if got != 0 {
		t.Errorf("%v allocations", got)
	}
}
