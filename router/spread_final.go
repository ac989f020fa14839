package router

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
)

// oncePerNode reports a query that needs no transaction: each node reads once, and the last step reads nothing but what they
// answered. In PostgreSQL each such part is a transaction of its own.
func (r *spreadRun) oncePerNode(st *plannedStatement) bool {
	return st.class == analyze.Query && !st.plan.Writes && r.e.Final != "" && len(r.e.Fragments) == 1 && !r.e.Fragments[0].Locks &&
		!r.e.Fragments[0].Opaque && !r.e.FinalReads
}

// lastStepAlone is lastStep without a transaction; done is false when the rows are too many for arrays.
func (s *session) lastStepAlone(ctx context.Context, st *plannedStatement, run *spreadRun) (done bool, err error) {
	extra, fit, err := s.gatherArrays(ctx, run, maxArrays)
	if err != nil {
		return false, err
	}
	if !fit {
		run.shape.large.Store(true)
		run.moved, run.asked = 0, nil
		return false, nil
	}
	p, err := s.participant(ctx, run.m.Home)
	if err != nil {
		return false, err
	}
	s.parkAsked(run, p)
	if err := s.final(ctx, run, p, run.shape.arrays, extra); err != nil {
		return false, err
	}
	s.effects(ctx, st, p)
	return true, nil
}

// lastStep gathers the rows and runs the last step over them.
func (s *session) lastStep(ctx context.Context, st *plannedStatement, run *spreadRun) error {
	final, extra, err := s.gather(ctx, run)
	if err != nil {
		return err
	}
	p, err := s.participant(ctx, run.m.Home)
	if err != nil {
		return err
	}
	p.wrote = p.wrote || st.plan.Writes
	if s.capture != nil {
		err = s.capturedFinal(ctx, run, p, final, extra)
	} else if st.class == analyze.Copy {
		err = s.finalText(ctx, run, p, final, extra)
	} else {
		err = s.final(ctx, run, p, final, extra)
	}
	if err != nil {
		return err
	}
	s.effects(ctx, st, p)
	return s.tidy(ctx, run, p, st.class == analyze.Declare, extra == nil)
}

// final runs the last step on the home node, with the client's parameters and those that hold gathered rows.
func (s *session) final(ctx context.Context, r *spreadRun, p *participant, text string, extra [][]byte) error {
	var id uint64
	if text == r.shape.arrays {
		id = s.appendNamedFinal(r, p, extra)
	} else {
		s.appendFinal(r, p, "", text, extra)
	}
	out := p.conn.Stream.Out()
	*out = pgwire.AppendSync(pgwire.AppendExecute(*out, "", 0))
	failed, err := s.relayOwn(ctx, p)
	if id != 0 && (failed || err != nil) {
		p.conn.Statements.Remove(id)
	}
	return s.shown(failed, err)
}

// appendNamedFinal is appendFinal for the last step over arrays, which stays prepared. It returns the statement's number if it had to
// be prepared.
func (s *session) appendNamedFinal(r *spreadRun, p *participant, extra [][]byte) (id uint64) {
	name, known := p.conn.Statements.Name(r.shape.finalID)
	if !known {
		var closed bool
		name, closed = parseNamed(p.conn, r.shape.finalID, r.shape.arrays, append(slices.Clone(r.types), make([]uint32, len(extra))...))
		if id = r.shape.finalID; closed {
			s.relay.ownCloses++
		}
	}
	values := append(slices.Clone(r.values), extra...)
	formats := append(slices.Clone(r.formats), make([]int16, len(extra))...)
	out := p.conn.Stream.Out()
	*out = pgwire.AppendBind(*out, "", name, formats, values, r.results)
	return id
}

// appendFinal queues Parse and Bind of the last step.
func (s *session) appendFinal(r *spreadRun, p *participant, portal, text string, extra [][]byte) {
	types := append(slices.Clone(r.types), make([]uint32, len(extra))...)
	values := append(slices.Clone(r.values), extra...)
	formats := append(slices.Clone(r.formats), make([]int16, len(extra))...)
	out := p.conn.Stream.Out()
	*out = pgwire.AppendParse(*out, "", p.conn.Wire(text), types)
	*out = pgwire.AppendBind(*out, portal, "", formats, values, r.results)
}

// finalText runs a last step that PostgreSQL takes no parameters for.
func (s *session) finalText(ctx context.Context, r *spreadRun, p *participant, text string, extra [][]byte) error {
	values, err := s.readValues(ctx, append(slices.Clone(r.values), extra...))
	if err != nil {
		return err
	}
	p.conn.SendQuery(withValues(text, values))
	s.relay.keepReady = true
	failed, err := s.exchange(ctx, p)
	s.relay.keepReady = false
	return s.shown(failed, err)
}

// shown notes an error that the client has seen.
func (s *session) shown(failed bool, err error) error {
	if err == nil && failed {
		s.stopped = true
		s.failBlock()
		return errShown
	}
	return err
}

// withValues writes values in place of $1, $2, ... in a text that the router has made itself.
func withValues(text string, values [][]byte) string {
	var b strings.Builder
	done := 0
	eachParameter(text, func(from, to, n int) {
		b.WriteString(text[done:from])
		if v := values[n-1]; v == nil {
			b.WriteString("NULL")
		} else {
			b.WriteString(plan.QuoteLiteral(string(v)))
		}
		done = to
	})
	b.WriteString(text[done:])
	return b.String()
}

// eachParameter finds the parameters of a text as analyze.Deparse writes it: strings are in single quotes, names in double ones.
func eachParameter(text string, visit func(from, to, number int)) {
	var quote byte
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == '$' && i+1 < len(text) && text[i+1] >= '1' && text[i+1] <= '9':
			end := i + 1
			for end < len(text) && text[end] >= '0' && text[end] <= '9' {
				end++
			}
			n, _ := strconv.Atoi(text[i+1 : end])
			visit(i, end, n)
			i = end - 1
		}
	}
}

// tidy takes the temporary tables of a statement away, or out of the way of the next one when a cursor still reads them.
func (s *session) tidy(ctx context.Context, r *spreadRun, p *participant, cursor, tables bool) error {
	if !tables || s.txn.mode != modeExplicit && !cursor {
		return nil // they go with the transaction
	}
	for i := range r.e.Fragments {
		name := "pg_temp." + plan.QuoteIdent(r.e.Fragments[i].Name)
		sql := "DROP TABLE " + name
		if cursor {
			s.cursorTables++
			sql = "ALTER TABLE " + name + " RENAME TO " + plan.QuoteIdent("shoal cursor "+itoa(s.cursorTables))
		}
		if err := p.conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// errShown is an error that a node's answer has told the client already.
var errShown = errors.New("the client has the error")

// relayOwn relays an answer to messages of the extended protocol that the client does not know of.
func (s *session) relayOwn(ctx context.Context, p *participant) (failed bool, err error) {
	s.relay.keepReady, s.relay.extended = true, true
	for _, t := range []byte("123n") {
		s.relay.Watch[t] = true
	}
	failed, err = s.exchange(ctx, p)
	for _, t := range []byte("123n") {
		s.relay.Watch[t] = false
	}
	s.relay.keepReady, s.relay.extended, s.relay.ownCloses = false, false, 0
	return failed, err
}
