package router

import (
	"context"
	"strings"

	"github.com/pgshoal/pgshoal/exec"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
)

// insertRows sends each row of VALUES to its node, in one statement per node. Rows that RETURNING gives back come
// in the order of VALUES.
func (s *session) insertRows(ctx context.Context, r *spreadRun) error {
	ins := r.e.Insert
	nodes, byNode, err := s.rowNodes(r)
	if err != nil {
		return err
	}
	asked := make([]*nodeRows, 0, len(nodes))
	for _, node := range nodes {
		p, err := s.answering(ctx, node)
		if err != nil {
			s.abandon(asked)
			return err
		}
		p.wrote = true
		texts := make([]string, len(byNode[node]))
		for i, row := range byNode[node] {
			texts[i] = ins.Rows[row]
		}
		text := ins.Before + strings.Join(texts, ", ") + ins.After
		types, values := usedOnly(r.types, r.values, textParameters(text))
		out := p.conn.Stream.Out()
		*out = pgwire.AppendParse(*out, "", p.conn.Wire(text), p.typesAt(types))
		*out = pgwire.AppendBind(*out, "", "", r.formats, p.valuesAt(types, r.formats, values), r.results)
		*out = pgwire.AppendSync(pgwire.AppendExecute(*out, "", 0))
		if err := p.conn.Stream.Flush(); err != nil {
			p.conn.Broken = true
			s.abandon(asked)
			return lostNode(node)
		}
		s.atNode(node)
		asked = append(asked, &nodeRows{s: s, part: p, columns: r.oidColumns(p)})
	}
	if err := s.returned(asked, nodes, byNode, len(ins.Rows)); err != nil {
		s.abandon(asked)
		return err
	}
	s.complete(summedTag(asked))
	return nil
}

// rowNodes finds the node of every row.
func (s *session) rowNodes(r *spreadRun) (nodes []string, byNode map[string][]int, err error) {
	ins := r.e.Insert
	byNode = map[string][]int{}
	one := ins.Pin
	one.Keys = make([]plan.KeyColumn, len(ins.Pin.Keys))
	for i := range ins.Rows {
		for k := range one.Keys {
			one.Keys[k] = ins.Pin.Keys[k]
			one.Keys[k].Operands = ins.Pin.Keys[k].Operands[i : i+1]
		}
		at, err := exec.Nodes(r.m, &one, r, s)
		if err != nil {
			return nil, nil, err
		}
		node := r.m.Home
		if len(at) > 0 {
			node = at[0]
		}
		if byNode[node] == nil {
			nodes = append(nodes, node)
		}
		byNode[node] = append(byNode[node], i)
	}
	return nodes, byNode, nil
}

// returned passes the rows of RETURNING on. A node's rows come in the order it was given them, unless it left
// some out: then they come node by node.
func (s *session) returned(asked []*nodeRows, nodes []string, byNode map[string][]int, total int) error {
	rows := make([][]byte, total)
	var rest [][]byte
	for i, n := range asked {
		var own [][]byte
		for {
			more, err := n.next()
			if err != nil {
				return err
			}
			if !more {
				break
			}
			own = append(own, append([]byte(nil), n.row...))
		}
		if given := byNode[nodes[i]]; len(own) == len(given) {
			for j, row := range own {
				rows[given[j]] = row
			}
		} else {
			rest = append(rest, own...)
		}
	}
	for _, row := range append(rows, rest...) {
		if row == nil {
			continue
		}
		if err := s.sendRow(row, 0); err != nil {
			return err
		}
	}
	return nil
}

// textParameters are the numbers of the parameters in a text that the router has made.
func textParameters(text string) map[int]bool {
	used := map[int]bool{}
	eachParameter(text, func(_, _, n int) { used[n] = true })
	return used
}
