package copyrows

import (
	"fmt"
	"slices"
	"unicode/utf8"
)

const (
	// maxRow is PostgreSQL's limit for one line of COPY data.
	maxRow = 1<<30 - 1
	// keepBuffer is how much memory a splitter keeps between rows.
	keepBuffer = 1 << 20
	// maxShown is how much of a line PostgreSQL shows in an error's context.
	maxShown = 100
)

// Emit gets a row as it was sent, newline included, and the values of its key columns: for text
// and CSV without quotes and escapes, for binary as sent, nil for NULL. Both are valid during
// the call only. The last row may come without its newline; no row follows it.
type Emit func(row []byte, key [][]byte) error

// A Splitter reads the data of one COPY.
type Splitter struct {
	opts    Options // with defaults
	null    string
	columns fieldPlan

	buf  []byte // begins with an unfinished row
	err  error  // of an earlier call
	done bool   // the end marker was read
	rows int64
	line int64 // PostgreSQL's number of the current line or binary row

	header  Header // what to do with the next line
	lines   lineState
	tuple   tupleState
	scratch []byte // values of key columns that differ from the row's bytes
}

// A fieldPlan says which columns are wanted, and has room for them.
type fieldPlan struct {
	slot []int // per column: index into values, or -1
	last int   // the last wanted column
	// values are the wanted columns of the current line.
	values [][]byte
	header bool // the line has names: only the NULL marker means something
	forced bool // FORCE_NULL or FORCE_NOT_NULL is there
}

func newPlan(columns int, wanted []int) fieldPlan {
	p := fieldPlan{slot: slices.Repeat([]int{-1}, columns), last: -1, values: make([][]byte, len(wanted))}
	for i, column := range wanted {
		p.slot[column] = i
		p.last = max(p.last, column)
	}
	return p
}

// New checks the options as PostgreSQL would, and prepares to read.
func New(opts Options) (*Splitter, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	opts = opts.withDefaults()
	s := &Splitter{
		opts: opts, null: *opts.Null, header: opts.Header,
		columns: newPlan(len(opts.Columns), opts.KeyColumns),
		scratch: make([]byte, 0, 64),
	}
	s.columns.forced = len(opts.ForceNotNull) > 0 || len(opts.ForceNull) > 0
	s.lines.marker = opts.Format == Text || opts.ServerVersion < 18
	return s, nil
}

// Prologue is what every target's stream begins with. Header lines are not passed on: a target's
// COPY has no HEADER option.
func (s *Splitter) Prologue() []byte {
	if s.opts.Format == Binary {
		return []byte(signature + "\x00\x00\x00\x00\x00\x00\x00\x00")
	}
	return nil
}

// Epilogue is what every target's stream ends with.
func (s *Splitter) Epilogue() []byte {
	if s.opts.Format == Binary {
		return []byte{0xff, 0xff}
	}
	return nil
}

// Rows is the number of rows handed out.
func (s *Splitter) Rows() int64 { return s.rows }

// Where is the context that PostgreSQL gives an error in the current row.
func (s *Splitter) Where() string { return fmt.Sprintf("COPY %s, line %d", s.opts.Table, s.line) }

// Write reads a piece of the data, which may begin and end anywhere. Once it fails it fails
// always.
func (s *Splitter) Write(chunk []byte, emit Emit) error {
	if s.err != nil {
		return s.err
	}
	data, kept := chunk, len(s.buf) > 0
	if kept {
		s.buf = append(s.buf, chunk...)
		data = s.buf
	}
	n, err := s.read(data, false, emit)
	if err != nil {
		s.err = err
		return err
	}
	rest := data[n:]
	if len(rest) > maxRow {
		s.err = s.fail(codeLimit, "COPY row is longer than %d bytes", maxRow)
		return s.err
	}
	if kept && n == 0 {
		return nil // a long row goes on; moving it each time would take quadratic time
	}
	if cap(s.buf) > keepBuffer && len(rest) < keepBuffer/2 {
		s.buf = nil
	}
	s.buf = append(s.buf[:0], rest...)
	return nil
}

// Close reads what is left when no more data comes.
func (s *Splitter) Close(emit Emit) error {
	if s.err != nil {
		return s.err
	}
	_, s.err = s.read(s.buf, true, emit)
	s.buf = nil
	return s.err
}

func (s *Splitter) read(data []byte, eof bool, emit Emit) (int, error) {
	if s.opts.Format == Binary {
		return s.readBinary(data, eof, emit)
	}
	return s.readLines(data, eof, emit)
}

// fail makes an error about the current line or row.
func (s *Splitter) fail(code, format string, args ...any) *Error {
	err := failure(code, format, args...)
	err.Where = s.Where()
	return err
}

// failLine makes an error about the fields of a line, whose text it shows.
func (s *Splitter) failLine(line []byte, code, format string, args ...any) *Error {
	err := s.fail(code, format, args...)
	shown, dots := line, ""
	if len(line) > maxShown {
		shown, dots = line[:maxShown], "..."
		for i := 0; i < utf8.UTFMax && len(shown) > 0 && !utf8.RuneStart(line[len(shown)]); i++ {
			shown = shown[:len(shown)-1]
		}
	}
	err.Where += fmt.Sprintf(": \"%s%s\"", shown, dots)
	return err
}

// takeLine handles a whole line; row is the line with its newline.
func (s *Splitter) takeLine(row, line []byte, emit Emit) error {
	if s.header != NoHeader {
		match := s.header == MatchHeader
		s.header = NoHeader
		return s.takeHeader(line, match)
	}
	count, err := s.fields(line, &s.columns)
	if err != nil {
		return err
	}
	if count != len(s.opts.Columns) {
		if count > len(s.opts.Columns) {
			return s.failLine(line, codeBadFormat, "extra data after last expected column")
		}
		return s.failLine(line, codeBadFormat, "missing data for column \"%s\"", s.opts.Columns[count])
	}
	s.rows++
	return emit(row, s.columns.values)
}

// takeHeader swallows the header line. Since no target sees it, its encoding is checked here.
func (s *Splitter) takeHeader(line []byte, match bool) error {
	if sequence := invalidUTF8(line); sequence != nil && encodingName(s.opts.Encoding) != asciiEncoding {
		return s.fail(codeEncoding, "invalid byte sequence for encoding \"UTF8\": % #x", sequence)
	}
	if !match {
		return nil
	}
	names := s.opts.Columns
	all := make([]int, len(names))
	for i := range all {
		all[i] = i
	}
	plan := newPlan(len(names), all)
	plan.header = true
	count, err := s.fields(line, &plan)
	if err != nil {
		return err
	}
	if count != len(names) {
		return s.failLine(line, codeBadFormat, "wrong number of fields in header line: got %d, expected %d", count, len(names))
	}
	for i, name := range names {
		switch got := plan.values[i]; {
		case got == nil:
			return s.failLine(line, codeBadFormat, "column name mismatch in header line field %d: got null value (\"%s\"), expected \"%s\"", i+1, s.null, name)
		case string(got) != name:
			return s.failLine(line, codeBadFormat, "column name mismatch in header line field %d: got \"%s\", expected \"%s\"", i+1, got, name)
		}
	}
	return nil
}

// invalidUTF8 returns the first bytes that are no character PostgreSQL accepts.
func invalidUTF8(text []byte) []byte {
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if r == 0 || r == utf8.RuneError && size == 1 {
			want := 1
			switch c := text[i]; {
			case c&0xe0 == 0xc0:
				want = 2
			case c&0xf0 == 0xe0:
				want = 3
			case c&0xf8 == 0xf0:
				want = 4
			}
			return text[i:min(i+want, len(text))]
		}
		i += size
	}
	return nil
}
