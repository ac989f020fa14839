package copyrows

import "bytes"

type newline uint8

const (
	unknownNewline newline = iota
	newlineLF
	newlineCR
	newlineCRLF
)

// lineState is how far the search for the end of a line has come. Positions count from the
// start of the data that is being read, which begins with the unfinished line.
type lineState struct {
	style  newline // of the first line; all others must have it
	marker bool    // a line \. ends the data
	begun  bool    // the current line is counted
	pos    int     // everything before is known not to end the line
	// special says that the line has a backslash (text) or a quote (CSV), so that its fields
	// cannot be found by searching for delimiters.
	special   bool
	inQuote   bool
	afterEsc  bool
	lf, cr, x int // next \n, \r and backslash or quote at or after pos, if not before it
}

// end of a line: the line is data[:text], its newline goes up to next.
type lineEnd struct {
	text, next int
	found      bool
}

func (s *Splitter) readLines(data []byte, eof bool, emit Emit) (int, error) {
	l := &s.lines
	l.lf, l.cr, l.x = -1, -1, -1
	start := 0
	for !s.done && start < len(data) {
		if !l.begun {
			l.begun = true
			s.line++
		}
		var end lineEnd
		var err error
		if s.opts.Format == CSV {
			end, err = s.findCSV(data, start, eof)
		} else {
			end, err = s.findText(data, start, eof)
		}
		if err != nil {
			return start, err
		}
		if !end.found {
			break
		}
		if err := s.takeLine(data[start:end.next], data[start:end.text], emit); err != nil {
			return start, err
		}
		start = end.next
		l.pos = start
		l.begun, l.special, l.inQuote, l.afterEsc = false, false, false, false
	}
	if s.done {
		start = len(data)
	}
	l.pos -= start
	return start, nil
}

// seek returns the next c at or after from; known is the answer of an earlier search.
func seek(data []byte, from, known int, c byte) int {
	if known >= from {
		return known
	}
	if i := bytes.IndexByte(data[from:], c); i >= 0 {
		return from + i
	}
	return len(data)
}

func (s *Splitter) findText(data []byte, start int, eof bool) (lineEnd, error) {
	l := &s.lines
	for {
		l.lf = seek(data, l.pos, l.lf, '\n')
		l.cr = seek(data, l.pos, l.cr, '\r')
		l.x = seek(data, l.pos, l.x, '\\')
		at := min(l.lf, l.cr, l.x)
		if at == len(data) {
			l.pos = at
			return lineEnd{at, at, eof}, nil
		}
		l.pos = at
		if at != l.x {
			return s.newlineAt(data, at, eof)
		}
		l.special = true
		if at+1 == len(data) {
			if eof {
				l.pos = len(data)
				continue // a backslash just before the end is data
			}
			return lineEnd{}, nil
		}
		if data[at+1] == '.' {
			return lineEnd{}, s.textMarker(data, start, at, eof)
		}
		l.pos = at + 2
	}
}

// newlineAt ends the line at a \n or \r outside quotes, if it fits the style of the lines before.
func (s *Splitter) newlineAt(data []byte, at int, eof bool) (lineEnd, error) {
	l := &s.lines
	if data[at] == '\n' {
		if l.style == newlineCR || l.style == newlineCRLF {
			return lineEnd{}, s.strayNewline("newline", `\n`)
		}
		l.style = newlineLF
		return lineEnd{at, at + 1, true}, nil
	}
	switch l.style {
	case newlineCR:
		return lineEnd{at, at + 1, true}, nil
	case newlineLF:
		return lineEnd{}, s.strayNewline("carriage return", `\r`)
	}
	if at+1 == len(data) && !eof {
		return lineEnd{}, nil
	}
	if at+1 < len(data) && data[at+1] == '\n' {
		l.style = newlineCRLF
		return lineEnd{at, at + 2, true}, nil
	}
	if l.style == newlineCRLF {
		return lineEnd{}, s.strayNewline("carriage return", `\r`)
	}
	l.style = newlineCR
	return lineEnd{at, at + 1, true}, nil
}

func (s *Splitter) strayNewline(what, escape string) error {
	if s.opts.Format == CSV {
		err := s.fail(codeBadFormat, "unquoted %s found in data", what)
		err.Hint = "Use quoted CSV field to represent " + what + "."
		return err
	}
	err := s.fail(codeBadFormat, "literal %s found in data", what)
	err.Hint = `Use "` + escape + `" to represent ` + what + `.`
	return err
}

type markerState uint8

const (
	markerShort    markerState = iota // more data is needed
	markerCorrupt                     // something else follows
	markerMismatch                    // another newline style follows
	markerEnd
)

// markerAt looks at what follows a \. whose backslash is at the position.
func (s *Splitter) markerAt(data []byte, at int, eof bool) markerState {
	rest := data[at+2:]
	if s.lines.style == newlineCRLF {
		switch {
		case len(rest) == 0 && !eof:
			return markerShort
		case len(rest) > 0 && rest[0] == '\n' && s.opts.Format == Text:
			return markerMismatch
		case len(rest) == 0 || rest[0] != '\r':
			return markerCorrupt
		}
		rest = rest[1:]
	}
	if len(rest) == 0 {
		if eof {
			return markerCorrupt
		}
		return markerShort
	}
	switch c := rest[0]; {
	case c != '\n' && c != '\r':
		return markerCorrupt
	case s.lines.style == newlineCR && c != '\r', s.lines.style != newlineCR && s.lines.style != unknownNewline && c != '\n':
		return markerMismatch
	}
	return markerEnd
}

// textMarker handles \. in text data. PostgreSQL before 18 takes what stands before it on its
// line for a last row, later versions do not; here it is an error.
func (s *Splitter) textMarker(data []byte, start, at int, eof bool) error {
	switch s.markerAt(data, at, eof) {
	case markerShort:
		return nil
	case markerMismatch:
		return s.fail(codeBadFormat, "end-of-copy marker does not match previous newline style")
	case markerCorrupt:
		return s.fail(codeBadFormat, "end-of-copy marker corrupt")
	}
	if at != start {
		return s.fail(codeBadFormat, "end-of-copy marker is not alone on its line")
	}
	s.done = true
	return nil
}

func (s *Splitter) findCSV(data []byte, start int, eof bool) (lineEnd, error) {
	l := &s.lines
	if l.pos == start && l.marker && data[start] == '\\' {
		if wait, err := s.csvMarker(data, start, eof); wait || s.done || err != nil {
			return lineEnd{}, err
		}
	}
	for {
		if l.inQuote {
			s.skipQuoted(data)
		}
		l.lf = seek(data, l.pos, l.lf, '\n')
		l.cr = seek(data, l.pos, l.cr, '\r')
		l.x = seek(data, l.pos, l.x, s.opts.Quote)
		at := min(l.lf, l.cr, l.x)
		l.pos = at
		if at == len(data) {
			return lineEnd{at, at, eof}, nil
		}
		if at != l.x {
			return s.newlineAt(data, at, eof)
		}
		l.special, l.inQuote = true, true
		l.pos = at + 1
	}
}

// csvMarker handles a line that begins with a backslash: only \. alone is the end marker, anything
// else is data. It asks to wait while that is open.
func (s *Splitter) csvMarker(data []byte, start int, eof bool) (wait bool, err error) {
	if len(data) == start+1 {
		return !eof, nil
	}
	if data[start+1] != '.' {
		return false, nil
	}
	switch s.markerAt(data, start, eof) {
	case markerShort:
		return true, nil
	case markerMismatch:
		return false, s.fail(codeBadFormat, "end-of-copy marker does not match previous newline style")
	case markerEnd:
		s.done = true
	}
	return false, nil
}

// skipQuoted moves past the quote that ends a quoted part, or to the end of the data. Newlines in
// quotes count as lines, by PostgreSQL's rule.
func (s *Splitter) skipQuoted(data []byte) {
	l := &s.lines
	counted := byte('\r')
	if l.style == newlineLF {
		counted = '\n'
	}
	quote, escape := s.opts.Quote, s.opts.Escape
	if quote == escape {
		n := bytes.IndexByte(data[l.pos:], quote)
		l.inQuote = n < 0
		if n < 0 {
			n = len(data) - l.pos
		}
		s.line += int64(bytes.Count(data[l.pos:l.pos+n], []byte{counted}))
		l.pos += n
		if !l.inQuote {
			l.pos++
		}
		return
	}
	for ; l.pos < len(data); l.pos++ {
		switch c := data[l.pos]; {
		case c == escape:
			l.afterEsc = !l.afterEsc
			continue
		case c == quote && !l.afterEsc:
			l.inQuote = false
			l.pos++
			return
		case c == counted:
			s.line++
		}
		l.afterEsc = false
	}
}
