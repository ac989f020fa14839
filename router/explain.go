package router

import (
	"context"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/exec"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
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
	line, err := s.routeLine(st.plan, p.node)
	if err != nil {
		return err
	}
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

// routeLine says where a statement runs, by which columns, and how many shards they leave of each
// distribution.
func (s *session) routeLine(pl *plan.Plan, node string) (string, error) {
	var columns, pruned []string
	var distributions []uint32
	left := map[uint32][]int{}
	m := s.router.view.Load().m
	for i := range pl.Pins {
		pin := &pl.Pins[i]
		if by := pin.Restricted(); !slices.Contains(columns, by) {
			columns = append(columns, by)
		}
		d := m.Distribution(pin.Distribution)
		if d == nil {
			return "", errStale()
		}
		shards, err := exec.Shards(d, pin, s, s)
		if err != nil {
			return "", err
		}
		if !slices.Contains(distributions, pin.Distribution) {
			distributions = append(distributions, pin.Distribution)
		}
		left[pin.Distribution] = append(left[pin.Distribution], shards...)
	}
	for _, id := range distributions {
		slices.Sort(left[id])
		pruned = append(pruned, itoa(len(slices.Compact(left[id])))+" of "+itoa(len(m.Distribution(id).Shards)))
	}
	return "Route  (node: " + node + ", by " + strings.Join(columns, ", ") + ", shards: " + strings.Join(pruned, ", ") + ")", nil
}

// appendIndented appends a row of a plan below the router's line.
func appendIndented(buf, msg []byte) []byte {
	values, err := pgwire.DataRow(msg, nil)
	if err != nil || len(values) != 1 {
		return append(buf, msg...)
	}
	return pgwire.AppendDataRow(buf, [][]byte{append([]byte("  "), values[0]...)})
}
