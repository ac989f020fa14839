package copyrows

import (
	"encoding/binary"
	"strings"
)

const signature = "PGCOPY\n\xff\r\n\x00"

// tupleState is how far reading a binary header or row has come.
type tupleState struct {
	header  bool  // the header is read
	skip    int64 // bytes of the header's extension that are still to come
	trailer bool  // the end marker is read
	begun   bool  // the current row's field count is read
	pos     int   // from the start of the row: the next field
	field   int   // index of the next field
	// bounds of the key columns within the row, start < 0 for NULL; values are cut out when
	// the row is whole, because it may move in memory until then.
	bounds [][2]int
}

func (s *Splitter) readBinary(data []byte, eof bool, emit Emit) (int, error) {
	start := 0
	if !s.tuple.header {
		n, err := s.readBinaryHeader(data, eof)
		if err != nil || n == 0 {
			return 0, err
		}
		start = n
	}
	if s.tuple.skip > 0 {
		n := min(s.tuple.skip, int64(len(data)-start))
		s.tuple.skip -= n
		start += int(n)
		if s.tuple.skip > 0 {
			if eof {
				return start, failure(codeBadFormat, "invalid COPY file header (wrong length)")
			}
			return start, nil
		}
	}
	for !s.tuple.trailer {
		n, err := s.readTuple(data[start:], eof)
		if err != nil {
			return start, err
		}
		if n == 0 {
			return start, nil
		}
		row := data[start : start+n]
		start += n
		if s.tuple.trailer {
			break
		}
		for i, b := range s.tuple.bounds {
			s.columns.values[i] = nil
			if b[0] >= 0 {
				s.columns.values[i] = row[b[0]:b[1]:b[1]]
			}
		}
		s.rows++
		if err := emit(row, s.columns.values); err != nil {
			return start, err
		}
	}
	if start < len(data) {
		return start, s.fail(codeBadFormat, "received copy data after EOF marker")
	}
	return start, nil
}

// readBinaryHeader reads signature, flags and the length of the extension; 0 means more data is
// needed.
func (s *Splitter) readBinaryHeader(data []byte, eof bool) (int, error) {
	const size = len(signature) + 8
	known := min(len(data), len(signature))
	switch {
	case !strings.HasPrefix(signature, string(data[:known])), eof && known < len(signature):
		return 0, failure(codeBadFormat, "COPY file signature not recognized")
	case eof && len(data) < size-4:
		return 0, failure(codeBadFormat, "invalid COPY file header (missing flags)")
	case len(data) < size-4:
		return 0, nil
	}
	flags := binary.BigEndian.Uint32(data[len(signature):])
	switch {
	case flags&(1<<16) != 0:
		return 0, failure(codeBadFormat, "invalid COPY file header (WITH OIDS)")
	case flags>>16 != 0:
		return 0, failure(codeBadFormat, "unrecognized critical flags in COPY file header")
	case eof && len(data) < size:
		return 0, failure(codeBadFormat, "invalid COPY file header (missing length)")
	case len(data) < size:
		return 0, nil
	}
	extension := int32(binary.BigEndian.Uint32(data[size-4:]))
	if extension < 0 {
		return 0, failure(codeBadFormat, "invalid COPY file header (missing length)")
	}
	s.tuple.header, s.tuple.skip = true, int64(extension)
	s.tuple.bounds = make([][2]int, len(s.opts.KeyColumns))
	return size, nil
}

// readTuple reads one row at the start of data and returns its size; 0 means more data is needed,
// or there is none.
func (s *Splitter) readTuple(data []byte, eof bool) (int, error) {
	t := &s.tuple
	if !t.begun {
		if len(data) < 2 {
			return 0, nil // PostgreSQL takes a lone byte at the end for the end, too
		}
		s.line++
		count := int16(binary.BigEndian.Uint16(data))
		if count == -1 {
			t.trailer = true
			return 2, nil
		}
		if int(count) != len(s.opts.Columns) {
			return 0, s.fail(codeBadFormat, "row field count is %d, expected %d", count, len(s.opts.Columns))
		}
		t.begun, t.pos, t.field = true, 2, 0
	}
	for ; t.field < len(s.opts.Columns); t.field++ {
		if len(data)-t.pos < 4 {
			return 0, s.binaryShort(eof)
		}
		size := int(int32(binary.BigEndian.Uint32(data[t.pos:])))
		if size < -1 {
			return 0, s.failColumn("invalid field size")
		}
		from := t.pos + 4
		if size > len(data)-from {
			if size > maxRow {
				return 0, s.fail(codeLimit, "COPY row is longer than %d bytes", maxRow)
			}
			return 0, s.binaryShort(eof)
		}
		if slot := s.columns.slot[t.field]; slot >= 0 {
			t.bounds[slot] = [2]int{-1, -1}
			if size >= 0 {
				t.bounds[slot] = [2]int{from, from + size}
			}
		}
		t.pos = from + max(size, 0)
	}
	t.begun = false
	return t.pos, nil
}

func (s *Splitter) binaryShort(eof bool) error {
	if !eof {
		return nil
	}
	return s.failColumn("unexpected EOF in COPY data")
}

func (s *Splitter) failColumn(message string) error {
	err := s.fail(codeBadFormat, "%s", message)
	err.Where += ", column " + s.opts.Columns[s.tuple.field]
	return err
}
