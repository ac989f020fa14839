package pgwire

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
	"pgregory.net/rapid"
)

// drawError fills every field, now and then with nothing.
func drawError(t *rapid.T) *Error {
	e := &Error{}
	for i, f := range e.fields() {
		switch f.code {
		case 'P', 'p', 'L':
			*f.value = fmt.Sprint(rapid.Int32Range(1, 1<<30).Draw(t, string(f.code)))
		default:
			*f.value = drawText(fmt.Sprint("field ", i))(t)
		}
	}
	return e
}

func TestErrorRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawError(t)
		data := e.AppendTo([]byte("before"))[len("before"):]
		if got := ParseError(data); *got != *e {
			t.Fatalf("%+v, want %+v", got, e)
		}
		if got := ParseError(e.AppendNoticeTo(nil)); *got != *e {
			t.Fatalf("notice %+v, want %+v", got, e)
		}
		theirs, ok := decodeBackend(t, data).(*pgproto3.ErrorResponse)
		if !ok {
			t.Fatal("not an ErrorResponse")
		}
		reencoded := encode(t, theirs)
		if got := ParseError(reencoded); *got != *e {
			t.Fatalf("by way of pgproto3 %+v, want %+v", got, e)
		}
	})
}

func TestErrorHasAllFields(t *testing.T) {
	var e Error
	seen := map[byte]bool{}
	for _, f := range e.fields() {
		seen[f.code] = true
	}
	for _, code := range []byte("SVCMDHPpqWstcdnFLR") {
		if !seen[code] {
			t.Errorf("field %q is missing", code)
		}
	}
	n := 0
	for f := range reflect.TypeFor[Error]().Fields() {
		if f.IsExported() {
			n++
		}
	}
	if n != len(seen) {
		t.Errorf("%d fields in the struct, %d in the message", n, len(seen))
	}
}

func TestOwnErrorsTellTheirPlace(t *testing.T) {
	own := Errorf("0A000", "not yet")
	if !own.Own() || own.File != "" {
		t.Errorf("%+v", own)
	}
	sent := ParseError(own.AppendTo(nil))
	if sent.File != "errors_test.go" || sent.Line == "" || sent.Routine != "TestOwnErrorsTellTheirPlace" || sent.Own() {
		t.Errorf("%+v", sent)
	}
	if node := (&Error{Severity: "ERROR", Code: "22012", Message: "division by zero"}); node.Own() || strings.Contains(string(node.AppendTo(nil)), "F") {
		t.Errorf("a place was added to what a node said: %q", node.AppendTo(nil))
	}
}

func TestParseErrorMalformed(t *testing.T) {
	good := Errorf("42P01", "relation \"x\" does not exist").AppendTo(nil)
	for n := range len(good) {
		if e := ParseError(good[:n]); e.Code != CodeProtocolViolation {
			t.Fatalf("%d of %d bytes: %v", n, len(good), e)
		}
	}
	unknown := message('E', "SERROR\x00?new\x00C42P01\x00\x00")
	if e := ParseError(unknown); e.Code != "42P01" {
		t.Errorf("with an unknown field: %+v", e)
	}
	if e := ParseError(message('Z', "I")); e.Code != CodeProtocolViolation {
		t.Errorf("of another message: %v", e)
	}
}

func TestErrorWithAZeroByteKeepsItsFrame(t *testing.T) {
	e := ParseError(Errorf("22021", "invalid byte \x00 in text").WithDetail("a%s", "\x00b").AppendTo(nil))
	if e.Message != "invalid byte  in text" || e.Detail != "ab" {
		t.Errorf("%+v", e)
	}
}

func TestErrorBehaviour(t *testing.T) {
	e := Fatalf("57P01", "terminating connection").WithHint("Connect %s.", "again")
	if e.Error() != "FATAL: terminating connection (SQLSTATE 57P01)" || e.SQLState() != "57P01" || e.Hint != "Connect again." {
		t.Errorf("%v", e)
	}
	if !e.IsFatal() || Errorf("42601", "x").IsFatal() || !(&Error{Severity: "PANIC"}).IsFatal() {
		t.Error("severity")
	}
	if AsError(fmt.Errorf("query node: %w", e)) != e {
		t.Error("a wrapped error was not found")
	}
	if got := AsError(errors.New("disk 100% full")); got.Code != CodeInternal || got.Message != "disk 100% full" {
		t.Errorf("%+v", got)
	}
	notice := Noticef("00000", "hello").AppendNoticeTo(nil)
	if notice[0] != 'N' || !bytes.Contains(notice, []byte("SNOTICE\x00")) {
		t.Errorf("%q", notice)
	}
}
