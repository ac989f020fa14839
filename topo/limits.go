package topo

import "fmt"

// opOverhead is what a key with its framing adds to a request besides its value.
const opOverhead = 64

// CheckTxn returns ErrTooLarge, with figures, for a transaction beyond the limits, and an error for
// one that names a key twice. Stores call it before they send anything.
func CheckTxn(conds []Cond, ops []Op) error {
	if n := max(len(conds), len(ops)); n > MaxTxnOps {
		return fmt.Errorf("%w: %d records, the limit is %d", ErrTooLarge, n, MaxTxnOps)
	}
	size := 0
	keys := make(map[string]bool, len(ops))
	for _, op := range ops {
		if keys[op.Key] {
			return fmt.Errorf("key %q is twice in one transaction", op.Key)
		}
		keys[op.Key] = true
		size += len(op.Key) + len(op.Value) + opOverhead
	}
	if size > MaxTxnBytes {
		return fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLarge, size, MaxTxnBytes)
	}
	return nil
}
