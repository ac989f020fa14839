package copyrows

import (
	"bytes"
	"slices"
)

// fields splits a line and puts the wanted columns into the plan. It returns how many fields the
// line has.
func (s *Splitter) fields(line []byte, plan *fieldPlan) (int, error) {
	s.scratch = s.scratch[:0]
	switch {
	case !s.lines.special:
		return s.plainFields(line, plan)
	case s.opts.Format == CSV:
		return s.csvFields(line, plan)
	default:
		return s.textFields(line, plan)
	}
}

// plainFields splits a line in which every delimiter is one.
func (s *Splitter) plainFields(line []byte, plan *fieldPlan) (int, error) {
	delimiter := s.opts.Delimiter
	start := 0
	for column := 0; column <= plan.last; column++ {
		end := len(line)
		if n := bytes.IndexByte(line[start:], delimiter); n >= 0 {
			end = start + n
		}
		if slot := plan.slot[column]; slot >= 0 {
			value := line[start:end:end]
			if err := s.store(line, plan, column, value, value, false); err != nil {
				return 0, err
			}
		}
		if end == len(line) {
			return column + 1, nil
		}
		start = end + 1
	}
	return plan.last + 2 + bytes.Count(line[start:], []byte{delimiter}), nil
}

// store keeps the value of a wanted column, or nil if its raw text is the NULL marker. Markers
// count only outside quotes.
func (s *Splitter) store(line []byte, plan *fieldPlan, column int, raw, value []byte, quoted bool) error {
	if !quoted && string(raw) == s.null {
		value = nil
	} else if d := s.opts.Default; d != nil && !plan.header && !quoted && string(raw) == *d {
		err := s.failLine(line, codeNotSupported, "COPY into a distributed table cannot use the default of key column \"%s\"", s.opts.Columns[column])
		err.Hint = "Write the key's value in the data."
		return err
	}
	if plan.forced {
		value = s.force(column, value)
	}
	plan.values[plan.slot[column]] = value
	return nil
}

func (s *Splitter) force(column int, value []byte) []byte {
	if value == nil {
		if slices.Contains(s.opts.ForceNotNull, column) {
			s.scratch = append(s.scratch, s.null...)
			return s.scratch[len(s.scratch)-len(s.null):]
		}
		return nil
	}
	if string(value) == s.null && slices.Contains(s.opts.ForceNull, column) {
		return nil
	}
	return value
}

// textFields splits a text line with backslashes.
func (s *Splitter) textFields(line []byte, plan *fieldPlan) (int, error) {
	delimiter := s.opts.Delimiter
	column, start, pos := 0, 0, 0
	for {
		escaped, end := false, -1
		for pos < len(line) && line[pos] != delimiter {
			if line[pos] == '\\' {
				escaped = true
				if pos+1 == len(line) {
					end = pos // a lone backslash at the end is dropped before markers are looked for
				}
				pos++
				if pos < len(line) && line[pos] == 'x' {
					_, n := number(line[pos+1:], 16, 2)
					pos += n // a delimiter A to F is a digit here
				}
			}
			pos++
		}
		if end < 0 {
			end = min(pos, len(line))
		}
		if column < len(plan.slot) && plan.slot[column] >= 0 {
			raw := line[start:end:end]
			value := raw
			if escaped {
				n := len(s.scratch)
				s.scratch = appendUnescaped(s.scratch, raw)
				value = s.scratch[n:len(s.scratch):len(s.scratch)]
			}
			if err := s.store(line, plan, column, raw, value, false); err != nil {
				return 0, err
			}
		}
		column++
		if pos >= len(line) {
			return column, nil
		}
		pos++
		start = pos
	}
}

// appendUnescaped decodes the backslash sequences of text format.
func appendUnescaped(out, raw []byte) []byte {
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		if c != '\\' {
			out = append(out, c)
			continue
		}
		i++
		switch c = raw[i]; c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'v':
			c = '\v'
		case 'x':
			if v, n := number(raw[i+1:], 16, 2); n > 0 {
				c = v
				i += n
			}
		default:
			if v, n := number(raw[i:], 8, 3); n > 0 {
				c = v
				i += n - 1
			}
		}
		out = append(out, c)
	}
	return out
}

// number reads up to most digits of the base; larger values lose their high bits, as in C.
func number(text []byte, base, most int) (v byte, n int) {
	for n < most && n < len(text) {
		d := 99
		switch c := text[n]; {
		case '0' <= c && c <= '9':
			d = int(c - '0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			d = int(c|0x20-'a') + 10
		}
		if d >= base {
			break
		}
		v = v*byte(base) + byte(d)
		n++
	}
	return v, n
}

// csvFields splits a CSV line with quotes.
func (s *Splitter) csvFields(line []byte, plan *fieldPlan) (int, error) {
	pos := 0
	for column := 0; ; column++ {
		wanted := column < len(plan.slot) && plan.slot[column] >= 0
		start, from := pos, len(s.scratch)
		quoted, end, err := s.csvField(line, start, wanted)
		if err != nil {
			return 0, err
		}
		if wanted {
			value := s.scratch[from:len(s.scratch):len(s.scratch)]
			if err := s.store(line, plan, column, line[start:end], value, quoted); err != nil {
				return 0, err
			}
		}
		if end == len(line) {
			return column + 1, nil
		}
		pos = end + 1
	}
}

// csvField reads one field up to a delimiter outside quotes, and its value into scratch if wanted.
func (s *Splitter) csvField(line []byte, pos int, wanted bool) (quoted bool, end int, err error) {
	delimiter, quote, escape := s.opts.Delimiter, s.opts.Quote, s.opts.Escape
	inQuote := false
	for ; pos < len(line); pos++ {
		c := line[pos]
		switch {
		case !inQuote && c == delimiter:
			return quoted, pos, nil
		case !inQuote && c == quote:
			quoted, inQuote = true, true
			continue
		case inQuote && c == escape && pos+1 < len(line) && (line[pos+1] == escape || line[pos+1] == quote):
			pos++
			c = line[pos]
		case inQuote && c == quote:
			inQuote = false
			continue
		}
		if wanted {
			s.scratch = append(s.scratch, c)
		}
	}
	if inQuote {
		return quoted, pos, s.failLine(line, codeBadFormat, "unterminated CSV quoted field")
	}
	return quoted, pos, nil
}
