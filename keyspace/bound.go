package keyspace

import (
	"fmt"
	"strconv"
)

// FormatBound writes a shard's bound in the key's own terms: a hash as PostgreSQL prints it. The start of the space
// is the empty string.
func (k *Key) FormatBound(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if !k.SingleHash() {
		return fmt.Sprintf("%x", b)
	}
	return signed(prefix(b))
}

// ParseBound reads a bound from the values of its leading components: a hash as PostgreSQL prints it, a region by
// its name, an entry as a number, a range's column in PostgreSQL's text format.
func (k *Key) ParseBound(values []string) ([]byte, error) {
	if !k.SingleHash() || len(values) != 1 {
		return nil, fmt.Errorf("%d values for a bound of strategy %s", len(values), k.Strategy())
	}
	hash, err := strconv.ParseInt(values[0], 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%q is not a hash: it is a whole number of 64 bits", values[0])
	}
	return bound(Point(uint64(hash))), nil
}
