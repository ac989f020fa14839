package catalog

import (
	"bytes"
	"strconv"
)

// loadColumns is the number of columns of every part of load.sql.
const loadColumns = 6

// fields are the values in the first column of a row of load.sql, taken one by one. The server
// wrote them, so what is missing or no number counts as zero.
type fields struct{ rest []byte }

func (f *fields) next() []byte {
	word, rest, _ := bytes.Cut(f.rest, []byte{' '})
	f.rest = rest
	return word
}

func (f *fields) letter() byte {
	word := f.next()
	if len(word) == 0 {
		return 0
	}
	return word[0]
}

func (f *fields) yes() bool { return f.letter() == 't' }

func (f *fields) oid() uint32 { return number(f.next()) }

// oids takes a list separated by commas.
func (f *fields) oids() []uint32 { return list[uint32](f.next()) }

// numbers takes a list of attribute numbers separated by commas.
func (f *fields) numbers() []int { return list[int](f.next()) }

func list[T int | uint32](word []byte) []T {
	if len(word) == 0 {
		return nil
	}
	all := make([]T, 0, 1+bytes.Count(word, []byte{','}))
	for part := range bytes.SplitSeq(word, []byte{','}) {
		all = append(all, T(number(part)))
	}
	return all
}

func number(digits []byte) uint32 {
	var n uint32
	for _, d := range digits {
		if d < '0' || d > '9' {
			return 0
		}
		n = n*10 + uint32(d-'0')
	}
	return n
}

// entry reads a point that is stored with bigint's order.
func entry(digits []byte) uint64 {
	n, _ := strconv.ParseInt(string(digits), 10, 64)
	return StoredEntry(n)
}

// StoredEntry is the entry that pg_shoal's tables have as a bigint.
func StoredEntry(stored int64) uint64 { return uint64(stored) ^ 1<<63 }

// StoreEntry is an entry as pg_shoal's tables have it: in the same order, and signed.
func StoreEntry(entry uint64) int64 { return int64(entry ^ 1<<63) }
