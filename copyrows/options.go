// Package copyrows splits the data of COPY FROM into rows and finds their key columns, so that
// the router can send each row where it belongs without decoding it.
//
// It reads text, CSV and binary data exactly as PostgreSQL 15 to 18 do. What it cannot read as
// PostgreSQL would is an error, never a guess.
package copyrows

import (
	"fmt"
	"slices"
	"strings"
)

// Format is the FORMAT option of COPY.
type Format uint8

const (
	Text Format = iota
	CSV
	Binary
)

// Header is the HEADER option of COPY.
type Header uint8

const (
	NoHeader Header = iota
	SkipHeader
	MatchHeader
)

// Options say how the data is written. They are COPY's own; zero values are its defaults.
type Options struct {
	Format    Format
	Delimiter byte
	// Null and Default are the markers; nil is the format's default and no marker.
	Null, Default *string
	Quote, Escape byte
	Header        Header
	// Encoding is the encoding of the data: the ENCODING option, else client_encoding.
	Encoding string

	// Table is the name without schema for the context of errors.
	Table string
	// Columns are the names of the columns in the data, in their order.
	Columns []string
	// KeyColumns are indexes into Columns, in the order in which keys are handed out.
	KeyColumns []int
	// ForceNotNull and ForceNull are indexes into Columns.
	ForceNotNull, ForceNull []int

	// ServerVersion is the major version of the nodes. From 18 on a line \. is data in CSV.
	ServerVersion int
}

const (
	codeInvalidParameter = "22023"
	codeNotSupported     = "0A000"
	codeSyntax           = "42601"
	codeBadFormat        = "22P04"
	codeEncoding         = "22021"
	codeLimit            = "54000"
)

// An Error is what PostgreSQL would report about the data or the options.
type Error struct {
	Code, Message, Hint, Where string
}

func (e *Error) Error() string { return e.Message }

// SQLState is the error's code.
func (e *Error) SQLState() string { return e.Code }

func failure(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// withDefaults fills in what COPY assumes.
func (o Options) withDefaults() Options {
	null := `\N`
	if o.Format == CSV {
		null = ""
		o.Delimiter = orByte(o.Delimiter, ',')
		o.Quote = orByte(o.Quote, '"')
		o.Escape = orByte(o.Escape, o.Quote)
	}
	o.Delimiter = orByte(o.Delimiter, '\t')
	if o.Null == nil {
		o.Null = &null
	}
	return o
}

func orByte(c, other byte) byte {
	if c == 0 {
		return other
	}
	return c
}

func (o *Options) validate() error {
	if err := o.validateColumns(); err != nil {
		return err
	}
	switch encodingName(o.Encoding) {
	case "", "UTF8", "UNICODE", asciiEncoding:
	default:
		return &Error{
			Code: codeNotSupported, Message: fmt.Sprintf("COPY into a distributed table cannot read encoding %q", o.Encoding),
			Hint: "Send the data in UTF8.",
		}
	}
	if o.Format == Binary {
		return o.validateBinary()
	}
	return o.withDefaults().validateMarkers()
}

// asciiEncoding is the name for bytes that nobody interprets.
const asciiEncoding = "SQLASCII"

// encodingName folds the spellings that PostgreSQL accepts.
func encodingName(name string) string {
	return strings.ToUpper(strings.NewReplacer("-", "", "_", "", " ", "").Replace(name))
}

func (o *Options) validateColumns() error {
	if len(o.Columns) == 0 {
		return failure(codeNotSupported, "COPY into a distributed table needs at least one column")
	}
	seen := make([]bool, len(o.Columns))
	for _, k := range o.KeyColumns {
		if k < 0 || k >= len(o.Columns) || seen[k] {
			return fmt.Errorf("copyrows: key column %d of %d columns", k, len(o.Columns))
		}
		seen[k] = true
	}
	for _, k := range slices.Concat(o.ForceNotNull, o.ForceNull) {
		if k < 0 || k >= len(o.Columns) {
			return fmt.Errorf("copyrows: forced column %d of %d columns", k, len(o.Columns))
		}
	}
	return nil
}

func (o *Options) validateBinary() error {
	switch {
	case o.Delimiter != 0:
		return failure(codeSyntax, "cannot specify DELIMITER in BINARY mode")
	case o.Null != nil:
		return failure(codeSyntax, "cannot specify NULL in BINARY mode")
	case o.Default != nil:
		return failure(codeSyntax, "cannot specify DEFAULT in BINARY mode")
	case o.Header != NoHeader:
		return failure(codeNotSupported, "cannot specify HEADER in BINARY mode")
	}
	return o.validateCSVOnly()
}

func (o *Options) validateCSVOnly() error {
	switch {
	case o.Quote != 0:
		return failure(codeNotSupported, "COPY QUOTE requires CSV mode")
	case o.Escape != 0:
		return failure(codeNotSupported, "COPY ESCAPE requires CSV mode")
	case len(o.ForceNotNull) > 0:
		return failure(codeNotSupported, "COPY FORCE_NOT_NULL requires CSV mode")
	case len(o.ForceNull) > 0:
		return failure(codeNotSupported, "COPY FORCE_NULL requires CSV mode")
	}
	return nil
}

// validateMarkers checks options whose defaults are filled in.
func (o Options) validateMarkers() error {
	if o.Format == Text {
		if err := o.validateCSVOnly(); err != nil {
			return err
		}
		if strings.IndexByte(`\.abcdefghijklmnopqrstuvwxyz0123456789`, o.Delimiter) >= 0 {
			return failure(codeInvalidParameter, `COPY delimiter cannot be "%c"`, o.Delimiter)
		}
	}
	if o.Delimiter == '\n' || o.Delimiter == '\r' {
		return failure(codeInvalidParameter, "COPY delimiter cannot be newline or carriage return")
	}
	for _, c := range []byte{o.Delimiter, o.Quote, o.Escape} {
		if c >= 0x80 || c == '\n' || c == '\r' {
			return failure(codeNotSupported, "COPY into a distributed table cannot use byte 0x%02x as delimiter, quote or escape", c)
		}
	}
	if o.Format == CSV && o.Delimiter == o.Quote {
		return failure(codeInvalidParameter, "COPY delimiter and quote must be different")
	}
	markers := []struct {
		name, words string
		text        *string
	}{{"NULL", "null", o.Null}, {"DEFAULT", "default", o.Default}}
	for _, m := range markers {
		switch {
		case m.text == nil:
		case strings.ContainsAny(*m.text, "\r\n"):
			return failure(codeInvalidParameter, "COPY %s representation cannot use newline or carriage return", m.words)
		case strings.IndexByte(*m.text, o.Delimiter) >= 0:
			return failure(codeNotSupported, "COPY delimiter must not appear in the %s specification", m.name)
		case o.Format == CSV && strings.IndexByte(*m.text, o.Quote) >= 0:
			return failure(codeNotSupported, "CSV quote character must not appear in the %s specification", m.name)
		}
	}
	if o.Default != nil && *o.Default == *o.Null {
		return failure(codeInvalidParameter, "NULL specification and DEFAULT specification cannot be the same")
	}
	return nil
}
