package pgwire

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
	"pgregory.net/rapid"
)

func encode(t interface{ Fatalf(string, ...any) }, msg pgproto3.Message) []byte {
	data, err := msg.Encode(nil)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return data
}

func TestParseDecode(t *testing.T) {
	var p Parse // used again, as a session does
	rapid.Check(t, func(t *rapid.T) {
		want := &pgproto3.Parse{
			Name:          drawText("name")(t),
			Query:         drawText("query")(t),
			ParameterOIDs: rapid.SliceOfN(rapid.Uint32(), 0, 5).Draw(t, "oids"),
		}
		if err := p.Decode(encode(t, want)); err != nil {
			t.Fatal(err)
		}
		if string(p.Name) != want.Name || string(p.Query) != want.Query || !slices.Equal(p.OIDs(nil), want.ParameterOIDs) {
			t.Fatalf("%q %q %v", p.Name, p.Query, p.OIDs(nil))
		}
		if p.OID(p.NumOIDs()) != 0 {
			t.Fatal("a type that was not given")
		}
		want.Name = "shoal_1"
		if got := p.AppendRenamed(nil, "shoal_1"); !bytes.Equal(got, encode(t, want)) {
			t.Fatalf("renamed: %q", got)
		}
	})
}

func TestBindDecode(t *testing.T) {
	var b Bind
	rapid.Check(t, func(t *rapid.T) {
		values := drawValues(t)
		want := &pgproto3.Bind{
			DestinationPortal:    drawText("portal")(t),
			PreparedStatement:    drawText("statement")(t),
			ParameterFormatCodes: drawFormats(t, len(values)),
			Parameters:           values,
			ResultFormatCodes:    rapid.SliceOfN(rapid.Int16Range(0, 1), 0, 4).Draw(t, "result formats"),
		}
		data := encode(t, want)
		if ours := AppendBind(nil, want.DestinationPortal, want.PreparedStatement, want.ParameterFormatCodes, values, want.ResultFormatCodes); !bytes.Equal(ours, data) {
			t.Fatalf("encoded %q, want %q", ours, data)
		}
		if err := b.Decode(data); err != nil {
			t.Fatal(err)
		}
		checkBind(t, &b, want)
		want.DestinationPortal, want.PreparedStatement = "", "shoal_7"
		if got := b.AppendRenamed(nil, "", "shoal_7"); !bytes.Equal(got, encode(t, want)) {
			t.Fatalf("renamed: %q", got)
		}
	})
}

func checkBind(t *rapid.T, b *Bind, want *pgproto3.Bind) {
	if string(b.Portal) != want.DestinationPortal || string(b.Statement) != want.PreparedStatement {
		t.Fatalf("names %q %q", b.Portal, b.Statement)
	}
	if b.NumParams() != len(want.Parameters) || b.NumResultFormats() != len(want.ResultFormatCodes) {
		t.Fatalf("%d parameters, %d result formats", b.NumParams(), b.NumResultFormats())
	}
	for i, param := range want.Parameters {
		value, isNull := b.Param(i)
		if isNull != (param == nil) || !bytes.Equal(value, param) {
			t.Fatalf("parameter %d: %q, null %v", i, value, isNull)
		}
		var format int16
		if n := len(want.ParameterFormatCodes); n > 0 {
			format = want.ParameterFormatCodes[min(i, n-1)]
		}
		if b.ParamFormat(i) != format {
			t.Fatalf("format %d of parameter %d", b.ParamFormat(i), i)
		}
	}
	for i, format := range want.ResultFormatCodes {
		if b.ResultFormat(i) != format {
			t.Fatalf("result format %d of column %d", b.ResultFormat(i), i)
		}
	}
	if len(want.ResultFormatCodes) == 1 && b.ResultFormat(99) != want.ResultFormatCodes[0] {
		t.Fatal("one result format is not for all columns")
	}
}

func TestSmallDecoders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := drawText("name")(t)
		object := rapid.SampledFrom([]byte{Statement, Portal}).Draw(t, "object")
		var d Describe
		if err := d.Decode(encode(t, &pgproto3.Describe{ObjectType: object, Name: name})); err != nil || d.Object != object || string(d.Name) != name {
			t.Fatalf("Describe %v: %v", d, err)
		}
		var c Close
		if err := c.Decode(encode(t, &pgproto3.Close{ObjectType: object, Name: name})); err != nil || c.Object != object || string(c.Name) != name {
			t.Fatalf("Close %v: %v", c, err)
		}
		var e Execute
		rows := rapid.Int32Range(0, 1<<30).Draw(t, "rows")
		if err := e.Decode(encode(t, &pgproto3.Execute{Portal: name, MaxRows: uint32(rows)})); err != nil || string(e.Portal) != name || e.MaxRows != rows {
			t.Fatalf("Execute %v: %v", e, err)
		}
		if q, err := QueryText(encode(t, &pgproto3.Query{String: name})); err != nil || string(q) != name {
			t.Fatalf("Query %q: %v", q, err)
		}
		if tag, err := CommandTag(encode(t, &pgproto3.CommandComplete{CommandTag: []byte(name)})); err != nil || string(tag) != name {
			t.Fatalf("CommandComplete %q: %v", tag, err)
		}
		n, v, err := ParameterStatus(encode(t, &pgproto3.ParameterStatus{Name: name, Value: "v"}))
		if err != nil || string(n) != name || string(v) != "v" {
			t.Fatalf("ParameterStatus %q %q: %v", n, v, err)
		}
		values := drawValues(t)
		row, err := DataRow(encode(t, &pgproto3.DataRow{Values: values}), nil)
		if err != nil || !slices.EqualFunc(row, values, func(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }) {
			t.Fatalf("DataRow %q: %v", row, err)
		}
	})
}

// decodeAny runs the decoder that the message type calls for.
func decodeAny(msg []byte) error {
	if len(msg) == 0 {
		return errMessageFormat()
	}
	switch msg[0] {
	case 'P':
		return new(Parse).Decode(msg)
	case 'B':
		return new(Bind).Decode(msg)
	case 'D':
		return new(Describe).Decode(msg)
	case 'C':
		return new(Close).Decode(msg)
	case 'E':
		return new(Execute).Decode(msg)
	default:
		_, err := QueryText(msg)
		return err
	}
}

func TestMalformedMessages(t *testing.T) {
	u16 := func(n uint16) string { return string(binary.BigEndian.AppendUint16(nil, n)) }
	u32 := func(n uint32) string { return string(binary.BigEndian.AppendUint32(nil, n)) }
	cases := []struct {
		name string
		msg  []byte
		want string
	}{
		{"query without an end", message('Q', "SELECT 1"), "invalid string in message"},
		{"query with more behind its end", message('Q', "SELECT 1\x00;"), "invalid message format"},
		{"length field too small", []byte{'Q', 0, 0, 0, 4, 0}, "invalid message format"},
		{"parse with too few types", message('P', "\x00\x00"+u16(2)+u32(1)), "insufficient data left in message"},
		{"parse without a count", message('P', "\x00\x00"), "insufficient data left in message"},
		{"bind formats", message('B', "\x00\x00"+u16(2)+u16(0)+u16(0)+u16(1)+u32(0)+u16(0)), "bind message has 2 parameter formats but 1 parameters"},
		{"bind size too large", message('B', "\x00\x00"+u16(0)+u16(1)+u32(5)+"abc"), "insufficient data left in message"},
		{"bind size below -1", message('B', "\x00\x00"+u16(0)+u16(1)+u32(1<<32-2)+u16(0)), "insufficient data left in message"},
		{"bind count too large", message('B', "\x00\x00"+u16(0)+u16(65535)), "insufficient data left in message"},
		{"describe of something", message('D', "X\x00"), "invalid DESCRIBE message subtype 88"},
		{"close of something", message('C', "X\x00"), "invalid CLOSE message subtype 88"},
		{"execute without a limit", message('E', "\x00"), "insufficient data left in message"},
	}
	for _, c := range cases {
		err := decodeAny(c.msg)
		if e, ok := err.(*Error); !ok || e.Code != CodeProtocolViolation || e.Message != c.want {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}

func TestBindKeepsNothingOfARefusedMessage(t *testing.T) {
	var b Bind
	if err := b.Decode(AppendBind(nil, "p", "s", nil, [][]byte{[]byte("1")}, nil)); err != nil {
		t.Fatal(err)
	}
	if err := b.Decode(message('B', "p\x00s\x00")); err == nil {
		t.Fatal("accepted")
	}
	if b.NumParams() != 0 || b.Statement != nil || b.ParamFormat(0) != 0 {
		t.Errorf("%+v", b)
	}
}

func TestDecodersAllocateNothing(t *testing.T) {
	bind := AppendBind(nil, "", "s1", []int16{1}, [][]byte{make([]byte, 8), nil, []byte("text")}, []int16{1})
	parse := AppendParse(nil, "s1", "SELECT $1", []uint32{20})
	query := AppendQuery(nil, "SELECT 1")
	execute := AppendExecute(nil, "", 0)
	var (
		b Bind
		p Parse
		e Execute
	)
	sum := 0
	n := testing.AllocsPerRun(100, func() {
		if b.Decode(bind) != nil || p.Decode(parse) != nil || e.Decode(execute) != nil {
			t.Fatal("refused")
		}
		text, err := QueryText(query)
		if err != nil {
			t.Fatal(err)
		}
		value, _ := b.Param(2)
		sum += len(text) + len(value) + int(p.OID(0))
	})
	if n != 0 || sum == 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzDecoders(f *testing.F) {
	f.Add(AppendBind(nil, "p", "s", []int16{0, 1}, [][]byte{nil, []byte("x")}, []int16{1}))
	f.Add(AppendParse(nil, "s", "SELECT $1", []uint32{23, 25}))
	f.Add(AppendDescribe(nil, Statement, "s"))
	f.Add(AppendExecute(nil, "p", 3))
	f.Add(AppendQuery(nil, "SELECT 1"))
	f.Fuzz(func(t *testing.T, msg []byte) {
		err := decodeAny(msg)
		if e, ok := err.(*Error); err != nil && (!ok || e.Code != CodeProtocolViolation) {
			t.Fatalf("%v is not a protocol violation", err)
		}
		var b Bind
		if b.Decode(msg) == nil {
			fuzzBind(t, &b, msg)
		}
		var p Parse
		if p.Decode(msg) == nil && !bytes.Equal(AppendParse(nil, p.Name, p.Query, p.OIDs(nil)), msg) {
			t.Fatalf("Parse %q does not encode to itself", msg)
		}
		_, _ = DataRow(msg, nil)
		_, _, _ = ParameterStatus(msg)
		_, _ = CommandTag(msg)
		_ = ReadyStatus(msg)
		if e := ParseError(msg); e == nil {
			t.Fatal("no error")
		}
	})
}

// fuzzBind encodes a decoded Bind again: nothing may be lost or added.
func fuzzBind(t *testing.T, b *Bind, msg []byte) {
	params := make([][]byte, b.NumParams())
	formats := make([]int16, len(b.formats)/2)
	for i := range params {
		value, isNull := b.Param(i)
		if !isNull {
			params[i] = value
		}
	}
	for i := range formats {
		formats[i] = b.ParamFormat(i)
	}
	results := make([]int16, b.NumResultFormats())
	for i := range results {
		results[i] = b.ResultFormat(i)
	}
	if !bytes.Equal(AppendBind(nil, b.Portal, b.Statement, formats, params, results), msg) {
		t.Fatalf("Bind %q does not encode to itself", msg)
	}
}

func BenchmarkBindDecode(b *testing.B) {
	msg := AppendBind(nil, "", "s1", []int16{1}, [][]byte{make([]byte, 8), []byte(strings.Repeat("x", 40))}, []int16{1})
	var bind Bind
	b.ReportAllocs()
	for b.Loop() {
		if err := bind.Decode(msg); err != nil {
			b.Fatal(err)
		}
		if value, _ := bind.Param(0); len(value) != 8 {
			b.Fatal("wrong value")
		}
	}
}
