package router

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/big"
	"slices"
	"strconv"

	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
)

// errNotCombined is a value of a form that no node should send.
var errNotCombined = errors.New("a node's part of an aggregate cannot be read")

// The types of which values are combined here.
const (
	boolOID    = 16
	int8OID    = 20
	int2OID    = 21
	int4OID    = 23
	numericOID = 1700
)

// combines reports that the router itself makes the one row of the answer from one row of each node: all aggregates are such that it
// gives what PostgreSQL would, in the formats that the client wants.
func (r *spreadRun) combines(st *plannedStatement) bool {
	if r.e.Combine == nil || !r.oncePerNode(st) || len(r.shape.fragments) != 1 {
		return false
	}
	types := r.shape.fragments[0].types
	if len(types) != len(r.e.Combine) || !slices.Equal(types, r.shape.own) {
		return false
	}
	for i, how := range r.e.Combine {
		if !combinesType(how, types[i], formatIsBinary(r.results, i)) {
			return false
		}
	}
	return true
}

// combinesType reports an exact way to combine values of a type.
func combinesType(how plan.Combine, oid uint32, isBinary bool) bool {
	switch how {
	case plan.CombineSum:
		return oid == int8OID
	case plan.CombineWhole:
		return oid == numericOID && !isBinary
	case plan.CombineMin, plan.CombineMax:
		switch oid {
		case 26, 1082, 1083, 1114, 1184: // oid, date, time and timestamps: their text does not show their order
			return isBinary
		}
		return oid == int2OID || oid == int4OID || oid == int8OID
	case plan.CombineAnd, plan.CombineOr:
		return oid == boolOID || oid == int2OID || oid == int4OID || oid == int8OID
	case plan.CombineXor:
		return oid == int2OID || oid == int4OID || oid == int8OID
	}
	return false
}

// combine asks all nodes and sends the one row of the answer.
func (s *session) combine(ctx context.Context, r *spreadRun) error {
	nodes, err := s.nodesOf(r, 0)
	if err != nil {
		return err
	}
	asked, err := s.ask(ctx, r, 0, nodes, r.results, true)
	if err != nil {
		return err
	}
	answer := make([][]byte, len(r.e.Combine))
	if err := r.combineRows(asked, answer); err != nil {
		s.abandon(asked)
		return err
	}
	if err := s.sendRow(pgwire.AppendDataRow(nil, answer), 0); err != nil {
		return err
	}
	s.complete("SELECT 1")
	return nil
}

func (r *spreadRun) combineRows(asked []*nodeRows, answer [][]byte) error {
	var values [][]byte
	for _, n := range asked {
		more, err := n.next()
		if err == nil && !more {
			err = errNotCombined
		}
		if err != nil {
			return err
		}
		if values, err = pgwire.DataRow(n.row, values[:0]); err != nil {
			return err
		}
		if len(values) != len(answer) {
			return errNotCombined
		}
		for i, v := range values {
			c := combining{r.e.Combine[i], r.shape.fragments[0].types[i], formatIsBinary(r.results, i)}
			if answer[i], err = c.add(answer[i], v); err != nil {
				return err
			}
		}
		if more, err = n.next(); err == nil && more {
			err = errNotCombined
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// combining is how two values of a column become one.
type combining struct {
	how    plan.Combine
	oid    uint32
	binary bool
}

// add combines what there is so far with one more value, which it does not keep.
func (c combining) add(have, v []byte) ([]byte, error) {
	switch {
	case v == nil:
		return have, nil
	case have == nil:
		return slices.Clone(v), nil
	case c.how == plan.CombineWhole:
		return addWhole(have, v)
	case c.oid == boolOID:
		return c.addBool(have, v)
	case c.oid != int2OID && c.oid != int4OID && c.oid != int8OID: // min and max in the binary format
		if order := compareKeys(plan.SortKey{Type: c.oid}, have, v); order > 0 == (c.how == plan.CombineMin) && order != 0 {
			return slices.Clone(v), nil
		}
		return have, nil
	}
	a, err := c.integer(have)
	if err != nil {
		return nil, err
	}
	b, err := c.integer(v)
	if err != nil {
		return nil, err
	}
	switch c.how {
	case plan.CombineSum:
		sum := a + b
		if b != 0 && (sum > a) != (b > 0) {
			return nil, pgwire.Errorf("22003", "bigint out of range")
		}
		a = sum
	case plan.CombineMin:
		a = min(a, b)
	case plan.CombineMax:
		a = max(a, b)
	case plan.CombineAnd:
		a &= b
	case plan.CombineOr:
		a |= b
	case plan.CombineXor:
		a ^= b
	}
	return c.appendInteger(have[:0], a), nil
}

func (c combining) addBool(have, v []byte) ([]byte, error) {
	truth := func(b []byte) bool { return bytes.Equal(b, []byte{'t'}) || bytes.Equal(b, []byte{1}) }
	if truth(v) == (c.how == plan.CombineOr) { // it decides
		return slices.Clone(v), nil
	}
	return have, nil
}

func addWhole(have, v []byte) ([]byte, error) {
	a, ok := new(big.Int).SetString(string(have), 10)
	b, also := new(big.Int).SetString(string(v), 10)
	if !ok || !also {
		return nil, errNotCombined
	}
	return a.Add(a, b).Append(have[:0], 10), nil
}

func (c combining) integer(v []byte) (int64, error) {
	switch {
	case !c.binary:
		return strconv.ParseInt(string(v), 10, 64)
	case c.oid == int8OID && len(v) == 8:
		return int64(binary.BigEndian.Uint64(v)), nil
	case c.oid == int4OID && len(v) == 4:
		return int64(int32(binary.BigEndian.Uint32(v))), nil
	case c.oid == int2OID && len(v) == 2:
		return int64(int16(binary.BigEndian.Uint16(v))), nil
	}
	return 0, errNotCombined
}

func (c combining) appendInteger(out []byte, n int64) []byte {
	switch {
	case !c.binary:
		return strconv.AppendInt(out, n, 10)
	case c.oid == int8OID:
		return binary.BigEndian.AppendUint64(out, uint64(n))
	case c.oid == int4OID:
		return binary.BigEndian.AppendUint32(out, uint32(n))
	}
	return binary.BigEndian.AppendUint16(out, uint16(n))
}
