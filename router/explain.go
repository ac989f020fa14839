package router

import (
	"context"
	"encoding/binary"
	"strings"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/pgwire"
)

// explains reports an EXPLAIN in text whose first line should say where the statement runs. What
// runs on the home node as on any PostgreSQL is explained by PostgreSQL alone.
func explains(st *plannedStatement) bool {
	return st.class == analyze.Explain && st.plan != nil && len(st.plan.Pins) > 0 &&
		!strings.Contains(strings.ToUpper(st.text[:min(len(st.text), 200)]), "FORMAT")
}

// explained puts the router's part of the plan above the node's.
func (s *session) explained(ctx context.Context, st *plannedStatement, p *participant) error {
	if err := s.flushPreamble(p); err != nil {
		return err
	}
	answer, err := s.collect(ctx, p.conn)
	if err != nil {
		return err
	}
	columns := make([]string, 0, len(st.plan.Pins))
	for _, pin := range st.plan.Pins {
		columns = append(columns, pin.Column)
	}
	line := "Route  (node: " + p.node + ", by " + strings.Join(columns, ", ") + ")"
	out := s.client.Out()
	for len(answer) >= 5 {
		size := 1 + int(binary.BigEndian.Uint32(answer[1:]))
		msg := answer[:size]
		answer = answer[size:]
		switch msg[0] {
		case 'T':
			*out = append(*out, msg...)
			*out = pgwire.AppendDataRow(*out, [][]byte{[]byte(line)})
		case 'D':
			*out = appendIndented(*out, msg)
		default:
			*out = append(*out, msg...)
		}
	}
	return nil
}

// appendIndented appends a row of a plan below the router's line.
func appendIndented(buf, msg []byte) []byte {
	values, err := pgwire.DataRow(msg, nil)
	if err != nil || len(values) != 1 {
		return append(buf, msg...)
	}
	return pgwire.AppendDataRow(buf, [][]byte{append([]byte("  "), values[0]...)})
}
