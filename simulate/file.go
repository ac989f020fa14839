package simulate

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"

	"github.com/pgshoal/pgshoal/keyspace"
)

// maxLine is the longest key of a file.
const maxLine = 8192

// fileSource is one key per line: integers if all lines are, else texts. Texts are ordered by the eight bytes after what all
// of them begin with, which is enough to cut them into intervals.
type fileSource struct {
	open   func() (io.ReadCloser, error)
	count  uint64
	texts  bool
	prefix int // how many bytes all lines share
}

// newFileSource reads the file once to learn what is in it.
func newFileSource(cfg *Config) (*fileSource, error) {
	f := &fileSource{open: cfg.Dist.Open}
	var common []byte
	err := f.eachLine(func(line []byte) {
		if _, err := strconv.ParseInt(string(line), 10, 64); err != nil {
			f.texts = true
		}
		if f.count == 0 {
			common = bytes.Clone(line)
		}
		n := 0
		for n < min(len(common), len(line)) && common[n] == line[n] {
			n++
		}
		common = common[:n]
		f.count++
	})
	f.prefix = len(common)
	var input *InputError
	switch {
	case errors.As(err, &input):
		return nil, err
	case err != nil:
		return nil, wrong("dist", "%v", err)
	case f.count == 0:
		return nil, wrong("dist", "the file %s has no keys", cfg.Dist.Path)
	}
	return f, nil
}

func (f *fileSource) rows() uint64   { return f.count }
func (f *fileSource) keys() uint64   { return f.count }
func (f *fileSource) distinct() bool { return false }
func (f *fileSource) later() source  { return nil }

func (f *fileSource) eachLine(do func([]byte)) (err error) {
	file, err := f.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	r := &lineReader{in: bufio.NewReaderSize(file, maxLine)}
	for {
		line, err := r.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		do(line)
	}
}

type lineReader struct {
	in     *bufio.Reader
	number int
}

// next returns the next line that is not empty; it is good until the next call.
func (r *lineReader) next() ([]byte, error) {
	for {
		r.number++
		line, err := r.in.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			return nil, wrong("dist", "line %d of the file is longer than %d bytes", r.number, maxLine)
		case err != nil && err != io.EOF:
			return nil, fmt.Errorf("line %d of the file: %w", r.number, err)
		}
		if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 {
			return line, nil
		}
		if err == io.EOF {
			return nil, io.EOF
		}
	}
}

func (f *fileSource) feed() (feed, func() error, error) {
	file, err := f.open()
	if err != nil {
		return nil, nil, err
	}
	var mutex sync.Mutex
	r, row := &lineReader{in: bufio.NewReaderSize(file, maxLine)}, uint64(0)
	return func(b *block) (bool, error) {
		mutex.Lock()
		b.first, b.n, b.lines = row, 0, b.lines[:0]
		for b.n < blockSize {
			line, err := r.next()
			if err == io.EOF {
				break
			}
			if err != nil {
				mutex.Unlock()
				return false, err
			}
			b.lines = append(b.lines, line...)
			b.ends[b.n] = len(b.lines)
			b.n++
		}
		row += uint64(b.n)
		mutex.Unlock()
		return b.n > 0, f.decode(b)
	}, file.Close, nil
}

func (f *fileSource) decode(b *block) error {
	start := 0
	for i := range b.n {
		line := b.lines[start:b.ends[i]]
		start = b.ends[i]
		if f.texts {
			hash, err := keyspace.HashText(keyspace.Text, keyspace.Text, line)
			if err != nil {
				return wrong("dist", "line %d of the file: %v", b.first+uint64(i)+1, err)
			}
			var order [8]byte
			copy(order[:], line[min(f.prefix, len(line)):])
			b.order[i], b.point[i] = binary.BigEndian.Uint64(order[:]), keyspace.Point(hash)
			b.index[i] = b.point[i]
			continue
		}
		value, err := strconv.ParseInt(string(line), 10, 64)
		if err != nil {
			return fmt.Errorf("the file has changed while it was read: %w", err)
		}
		var data [8]byte
		binary.BigEndian.PutUint64(data[:], uint64(value))
		hash, err := keyspace.HashBinary(keyspace.Int8, keyspace.Int8, data[:])
		if err != nil {
			return err
		}
		b.order[i], b.point[i] = uint64(value)^1<<63, keyspace.Point(hash)
		b.index[i] = b.order[i]
	}
	return nil
}

func (f *fileSource) sample(count int) (values []uint64, err error) {
	next, stop, err := f.feed()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	step := max(f.count/uint64(count), 1)
	b := new(block)
	for {
		more, err := next(b)
		if err != nil || !more {
			return values, err
		}
		for i := range b.n {
			if (b.first+uint64(i))%step == 0 {
				values = append(values, b.order[i])
			}
		}
	}
}
