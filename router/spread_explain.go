package router

import (
	"context"
	"strings"

	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
)

// explainSpread shows the plan of a query over several nodes.
func (s *session) explainSpread(_ context.Context, st *plannedStatement, r *spreadRun) error {
	out := s.client.Out()
	*out = pgwire.AppendRowDescription(*out, []pgwire.Column{pgwire.TextColumn("QUERY PLAN")})
	for line := range strings.Lines(r.e.String()) {
		*out = pgwire.AppendDataRow(*out, [][]byte{[]byte(strings.TrimRight(line, "\n"))})
	}
	s.complete("EXPLAIN")
	return nil
}

// gathered brings the rows of a query to the home node and returns what runs there over them.
func (s *session) gathered(ctx context.Context, st *plannedStatement, e *plan.Exchange) (text string, types []uint32, params [][]byte, err error) {
	run, err := s.beginSpread(ctx, st, e, arguments{})
	if err != nil {
		return "", nil, nil, err
	}
	final, extra, err := s.gather(ctx, run)
	if err != nil {
		return "", nil, nil, err
	}
	params = append(run.values, extra...)
	if params == nil {
		params = [][]byte{}
	}
	return final, append(run.types, make([]uint32, len(extra))...), params, nil
}
