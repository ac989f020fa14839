package keyspace

import "strconv"

// HashExpression returns the SQL expression for the hash of a column of type t. It uses only immutable
// built-in functions, so that triggers, indexes and publications may contain it. The column is SQL: a quoted
// identifier, with a qualifier where needed.
func (t Type) HashExpression(column string) string {
	if typeFacts[t].callable {
		return typeFacts[t].function + "(" + column + ", " + strconv.Itoa(HashSeed) + ")"
	}
	// The hash of a row with one column is that column's hash, by its type's own operator class.
	return "hash_record_extended(ROW(" + column + "), " + strconv.Itoa(HashSeed) + ")"
}

// RowFilter returns the SQL condition that holds for the rows of the interval of hash points from low up to
// but without high, where high nil is the end of the space. The column is SQL, as for HashExpression.
func (t Type) RowFilter(column string, low, high []byte) string {
	hash := t.HashExpression(column)
	from, to := prefix(low), prefix(high)
	switch {
	case from == 0 && high == nil:
		return "true"
	case from == 0:
		return "(" + hash + " < " + signed(to) + ")"
	case high == nil:
		return "(" + hash + " >= " + signed(from) + ")"
	}
	return "(" + hash + " >= " + signed(from) + " AND " + hash + " < " + signed(to) + ")"
}

// signed prints a point as PostgreSQL prints its hash.
func signed(point uint64) string { return strconv.FormatInt(int64(point^1<<63), 10) }
