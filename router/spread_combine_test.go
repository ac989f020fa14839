package router

import (
	"encoding/binary"
	"testing"

	"github.com/pgshoal/pgshoal/plan"
)

func TestCombining(t *testing.T) {
	t.Parallel()
	long := func(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }
	for _, c := range []struct {
		combining
		parts [][]byte
		want  []byte
	}{
		{combining{plan.CombineSum, int8OID, false}, [][]byte{[]byte("5"), nil, []byte("-7")}, []byte("-2")},
		{combining{plan.CombineSum, int8OID, false}, [][]byte{[]byte("0"), []byte("0")}, []byte("0")},
		{combining{plan.CombineSum, int8OID, false}, [][]byte{nil, nil}, nil},
		{combining{plan.CombineSum, int8OID, true}, [][]byte{long(1 << 40), long(-1)}, long(1<<40 - 1)},
		{combining{plan.CombineWhole, numericOID, false}, [][]byte{[]byte("9223372036854775807"), []byte("9223372036854775807")}, []byte("18446744073709551614")},
		{combining{plan.CombineMin, int4OID, false}, [][]byte{[]byte("10"), []byte("9"), []byte("11")}, []byte("9")},
		{combining{plan.CombineMax, int2OID, true}, [][]byte{{0xff, 0xff}, {0, 1}}, []byte{0, 1}},
		{combining{plan.CombineMin, 1184, true}, [][]byte{long(5), long(-5), long(7)}, long(-5)},
		{combining{plan.CombineMax, 1184, true}, [][]byte{long(5), long(-5), long(7)}, long(7)},
		{combining{plan.CombineAnd, boolOID, false}, [][]byte{[]byte("t"), nil, []byte("f"), []byte("t")}, []byte("f")},
		{combining{plan.CombineAnd, boolOID, true}, [][]byte{{1}, {1}}, []byte{1}},
		{combining{plan.CombineOr, boolOID, true}, [][]byte{{0}, {1}, {0}}, []byte{1}},
		{combining{plan.CombineOr, int4OID, false}, [][]byte{[]byte("5"), []byte("-8")}, []byte("-3")},
		{combining{plan.CombineAnd, int4OID, true}, [][]byte{{0, 0, 0, 6}, {0, 0, 0, 3}}, []byte{0, 0, 0, 2}},
		{combining{plan.CombineXor, int2OID, false}, [][]byte{[]byte("5"), []byte("1")}, []byte("4")},
	} {
		var have []byte
		var err error
		for _, v := range c.parts {
			if have, err = c.add(have, v); err != nil {
				t.Fatal(err)
			}
		}
		if string(have) != string(c.want) || (have == nil) != (c.want == nil) {
			t.Errorf("%v of %q is %q, not %q", c.how, c.parts, have, c.want)
		}
	}
}

func TestCombiningOverflows(t *testing.T) {
	t.Parallel()
	c := combining{plan.CombineSum, int8OID, false}
	for _, parts := range [][2]string{{"9223372036854775807", "1"}, {"-9223372036854775808", "-1"}} {
		if _, err := c.add([]byte(parts[0]), []byte(parts[1])); err == nil {
			t.Errorf("%v is no bigint", parts)
		}
	}
}
