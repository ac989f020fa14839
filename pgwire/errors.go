package pgwire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// SQLSTATEs that this package and its users raise by themselves; everything else comes from a node.
const (
	CodeProtocolViolation    = "08P01"
	CodeFeatureNotSupported  = "0A000"
	CodeInvalidParameter     = "22023"
	CodeInvalidAuthorization = "28000"
	CodeInvalidPassword      = "28P01"
	CodeSyntaxError          = "42601"
	CodeTooManyConnections   = "53300"
	CodeQueryCanceled        = "57014"
	CodeInternal             = "XX000"
)

// Severities that clients act on.
const (
	SeverityError  = "ERROR"
	SeverityFatal  = "FATAL"
	SeverityNotice = "NOTICE"
)

// Error is PostgreSQL's ErrorResponse or NoticeResponse with all its fields. A node's error keeps
// every field, so that encoding it again gives the client what the node said. Position, Line and
// the like stay text because that is how they travel.
type Error struct {
	Severity         string // S, in the server's language
	SeverityRaw      string // V, always English
	Code             string // C, the SQLSTATE
	Message          string // M
	Detail           string // D
	Hint             string // H
	Position         string // P
	InternalPosition string // p
	InternalQuery    string // q
	Where            string // W
	Schema           string // s
	Table            string // t
	Column           string // c
	DataType         string // d
	Constraint       string // n
	File             string // F
	Line             string // L
	Routine          string // R

	pc uintptr // where this program made it; 0 for what another server said
}

// Errorf makes an error that ends a statement.
func Errorf(code, format string, args ...any) *Error {
	return newError(SeverityError, code, format, args)
}

// Fatalf makes an error that ends the connection.
func Fatalf(code, format string, args ...any) *Error {
	return newError(SeverityFatal, code, format, args)
}

// Noticef makes a notice; AppendNoticeTo encodes it.
func Noticef(code, format string, args ...any) *Error {
	return newError(SeverityNotice, code, format, args)
}

func newError(severity, code, format string, args []any) *Error {
	e := &Error{Severity: severity, SeverityRaw: severity, Code: code, Message: fmt.Sprintf(format, args...)}
	var callers [1]uintptr
	if runtime.Callers(3, callers[:]) == 1 {
		e.pc = callers[0]
	}
	return e
}

// Own reports an error that this program made, as opposed to one that a node sent.
func (e *Error) Own() bool { return e.pc != 0 }

// locate fills in the place in the source, which PostgreSQL tells too: clients show it on request, and
// some drivers expect it.
func (e *Error) locate() {
	if e.pc == 0 || e.File != "" {
		return
	}
	frame, _ := runtime.CallersFrames([]uintptr{e.pc}).Next()
	e.File, e.Line = filepath.Base(frame.File), strconv.Itoa(frame.Line)
	if e.Routine == "" {
		name, _, _ := strings.Cut(frame.Function, ".func") // of the function that a closure is in
		e.Routine = name[strings.LastIndexByte(name, '.')+1:]
	}
}

// Relation is the table or view that the error is about, if the server says so.
func (e *Error) Relation() (schema, name string) { return e.Schema, e.Table }

// WithDetail sets the detail and returns e.
func (e *Error) WithDetail(format string, args ...any) *Error {
	e.Detail = fmt.Sprintf(format, args...)
	return e
}

// WithHint sets the hint, the way out, and returns e.
func (e *Error) WithHint(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}

// Error has the form that clients of PostgreSQL are used to.
func (e *Error) Error() string {
	return e.Severity + ": " + e.Message + " (SQLSTATE " + e.Code + ")"
}

// SQLState is the five-character code, the one thing about an error that programs may act on.
func (e *Error) SQLState() string { return e.Code }

// IsFatal reports whether the sender closes the connection after this error.
func (e *Error) IsFatal() bool {
	severity := e.SeverityRaw
	if severity == "" {
		severity = e.Severity
	}
	return severity == SeverityFatal || severity == "PANIC"
}

// AsError finds the PostgreSQL error in err's chain. Anything else becomes an internal error, so
// that a client always gets a well-formed answer.
func AsError(err error) *Error {
	if found, ok := errors.AsType[*Error](err); ok {
		return found
	}
	return Errorf(CodeInternal, "%s", err.Error())
}

// fields is the order in which PostgreSQL sends them.
func (e *Error) fields() [18]struct {
	code  byte
	value *string
} {
	return [18]struct {
		code  byte
		value *string
	}{
		{'S', &e.Severity},
		{'V', &e.SeverityRaw},
		{'C', &e.Code},
		{'M', &e.Message},
		{'D', &e.Detail},
		{'H', &e.Hint},
		{'P', &e.Position},
		{'p', &e.InternalPosition},
		{'q', &e.InternalQuery},
		{'W', &e.Where},
		{'s', &e.Schema},
		{'t', &e.Table},
		{'c', &e.Column},
		{'d', &e.DataType},
		{'n', &e.Constraint},
		{'F', &e.File},
		{'L', &e.Line},
		{'R', &e.Routine},
	}
}

// AppendTo appends e as an ErrorResponse.
func (e *Error) AppendTo(buf []byte) []byte { return e.appendAs(buf, 'E') }

// AppendNoticeTo appends e as a NoticeResponse.
func (e *Error) AppendNoticeTo(buf []byte) []byte { return e.appendAs(buf, 'N') }

func (e *Error) appendAs(buf []byte, typ byte) []byte {
	out := *e
	out.locate()
	buf, start := beginMessage(buf, typ)
	for _, f := range out.fields() {
		if *f.value == "" {
			continue
		}
		buf = append(buf, f.code)
		// A zero byte would end the field early and break the framing of the rest.
		buf = append(buf, strings.ReplaceAll(*f.value, "\x00", "")...)
		buf = append(buf, 0)
	}
	buf = append(buf, 0)
	return endMessage(buf, start)
}

// ParseError decodes a whole ErrorResponse or NoticeResponse, header included. Unknown fields are
// skipped, as the protocol asks. A malformed message gives a protocol violation instead.
func ParseError(msg []byte) *Error {
	var e Error
	if !e.decode(msg) {
		return Errorf(CodeProtocolViolation, "invalid error message from server")
	}
	return &e
}

func (e *Error) decode(msg []byte) bool {
	r := reader{msg: msg}
	if t := r.header(); t != 'E' && t != 'N' {
		return false
	}
	fields := e.fields()
	for {
		code := r.byte()
		if code == 0 {
			return r.done()
		}
		value := r.cstring()
		for i := range fields {
			if fields[i].code == code {
				*fields[i].value = string(value)
				break
			}
		}
	}
}

func beginMessage(buf []byte, typ byte) ([]byte, int) {
	return append(buf, typ, 0, 0, 0, 0), len(buf)
}

func endMessage(buf []byte, start int) []byte {
	binary.BigEndian.PutUint32(buf[start+1:], uint32(len(buf)-start-1))
	return buf
}
