package router

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
)

// explanation is the plan of a statement over several nodes as EXPLAIN (FORMAT JSON) shows it.
type explanation struct {
	Kind      string              `json:"Kind"`
	Fragments []explainedFragment `json:"Fragments,omitempty"`
	Merge     string              `json:"Merge,omitempty"`
	Combine   string              `json:"Combine,omitempty"`
	Final     string              `json:"Final,omitempty"`
	FinalNode string              `json:"Final Node,omitempty"`
	Rows      *explanation        `json:"Rows From,omitempty"`
	Write     []string            `json:"Write,omitempty"`
	Steps     []explainedStep     `json:"Steps,omitempty"`
	Tag       string              `json:"Command Tag,omitempty"`
	Total     *float64            `json:"Execution Time,omitempty"`
	Returned  *int64              `json:"Actual Rows,omitempty"`
	Moved     *int64              `json:"Bytes Moved,omitempty"`
	of        *plan.Exchange
}

type explainedStep struct {
	Name string       `json:"Name"`
	Plan *explanation `json:"Plan"`
}

type explainedFragment struct {
	Name  string          `json:"Name"`
	SQL   string          `json:"SQL"`
	Moves string          `json:"Moves,omitempty"`
	Where []string        `json:"Where"`
	Nodes []explainedNode `json:"Nodes"`
}

type explainedNode struct {
	Node  string   `json:"Node"`
	Rows  *int64   `json:"Actual Rows,omitempty"`
	Bytes *int64   `json:"Bytes,omitempty"`
	Time  *float64 `json:"Time,omitempty"`
}

// explainOptions reads the options that matter here.
func explainOptions(text string) (analyzes, asJSON bool, err error) {
	stmts, err := analyze.Parse(text)
	if err != nil || len(stmts) != 1 {
		return false, false, err
	}
	for _, o := range stmts[0].Tree.GetExplainStmt().GetOptions() {
		d := o.GetDefElem()
		value := strings.ToLower(d.GetArg().GetString_().GetSval())
		switch strings.ToLower(d.Defname) {
		case "analyze":
			analyzes = value != "false" && value != "off" && (d.GetArg().GetInteger() == nil || d.GetArg().GetInteger().Ival != 0)
		case "format":
			switch value {
			case "json":
				asJSON = true
			case "text":
			default:
				return false, false, pgwire.Errorf(pgwire.CodeFeatureNotSupported, "EXPLAIN (FORMAT %s) of a statement over several nodes is not supported", value).
					WithHint("Use TEXT or JSON.")
			}
		}
	}
	return analyzes, asJSON, nil
}

// explainSpread shows the plan of a statement over several nodes; with ANALYZE it runs, and its rows are only counted.
func (s *session) explainSpread(ctx context.Context, st *plannedStatement, r *spreadRun, describe bool) error {
	analyzes, asJSON, err := explainOptions(st.text)
	if err != nil {
		return err
	}
	ex, err := s.explanation(ctx, r, r.e)
	if err != nil {
		return err
	}
	if analyzes {
		if err := s.analyzeSpread(ctx, st, r, ex); err != nil {
			return err
		}
	}
	column := pgwire.TextColumn("QUERY PLAN")
	lines := ex.lines("")
	if asJSON {
		column.TypeOID = 114
		text, err := json.MarshalIndent([]any{map[string]any{"Plan": ex}}, "", "  ")
		if err != nil {
			return err
		}
		lines = []string{string(text)}
	}
	out := s.client.Out()
	if describe { // Execute has no description; Describe has
		*out = pgwire.AppendRowDescription(*out, []pgwire.Column{column})
	}
	for _, line := range lines {
		*out = pgwire.AppendDataRow(*out, [][]byte{[]byte(line)})
	}
	s.complete("EXPLAIN")
	return nil
}

func (s *session) explanation(ctx context.Context, r *spreadRun, e *plan.Exchange) (*explanation, error) {
	ex := &explanation{Kind: "Exchange", Combine: e.HowCombined(), Final: plan.Readable(e.Final), of: e}
	switch {
	case e.Same != "":
		ex.Kind, ex.Write = "Every", []string{"every node: " + e.Same}
		return ex, nil
	case len(e.Steps) > 0:
		ex.Kind = "Steps"
		steps, err := s.stepsWithTypes(ctx, r)
		if err != nil {
			return nil, err
		}
		for i := range steps {
			below, err := s.explanation(ctx, r, steps[i].Exchange)
			if err != nil {
				return nil, err
			}
			ex.Steps = append(ex.Steps, explainedStep{steps[i].Name, below})
		}
		return ex, nil
	case e.Feed != nil:
		below, err := s.explanation(ctx, r, e.Feed.Query)
		ex.Rows, ex.Write = below, e.Feed.Shown()
		return ex, err
	case e.Insert != nil:
		ex.Kind, ex.Write = "Scatter", []string{"each node by " + e.Insert.Pin.Columns() + ": " + e.Insert.Before + "..." + e.Insert.After}
		return ex, nil
	case e.Final == "":
		ex.Kind, ex.Merge = "Scatter", e.Merge.String()
	default:
		ex.FinalNode = r.m.Home
		if e == r.e {
			ex.Final = plan.Readable(r.shape.final)
		}
	}
	for i := range e.Fragments {
		f := &e.Fragments[i]
		nodes, err := s.findNodes(r, f)
		if err != nil && e == r.e {
			return nil, err
		}
		shown := explainedFragment{Name: f.Name, SQL: plan.Readable(f.Text)}
		if f.Motion != nil {
			shown.Moves = f.Motion.String()
		}
		for j := range f.Pins {
			shown.Where = append(shown.Where, f.Pins[j].String())
		}
		for _, n := range nodes {
			shown.Nodes = append(shown.Nodes, explainedNode{Node: n})
		}
		ex.Fragments = append(ex.Fragments, shown)
	}
	return ex, nil
}

// analyzeSpread runs a statement, counts its rows in place of sending them, and notes what each node did.
func (s *session) analyzeSpread(ctx context.Context, st *plannedStatement, r *spreadRun, ex *explanation) error {
	counted := &captured{}
	s.capture = counted
	defer func() { s.capture = nil }()
	started, was := time.Now(), r.e
	if err := s.runWork(ctx, st, r); err != nil {
		return err
	}
	if r.e != was { // rows could not move
		gathered, err := s.explanation(ctx, r, r.e)
		if err != nil {
			return err
		}
		*ex = *gathered
	}
	took := float64(time.Since(started).Microseconds()) / 1000
	moved := r.allMoved()
	ex.Total, ex.Returned, ex.Moved = &took, &counted.rows, &moved
	if st.plan.Writes {
		ex.Tag = counted.tag
	}
	ex.note(r)
	return nil
}

// allMoved is what the run and those inside it have moved.
func (r *spreadRun) allMoved() int64 {
	moved := r.moved
	for _, b := range r.below {
		moved += b.allMoved()
	}
	return moved
}

// note adds what nodes did in a run to the part of the plan that it ran.
func (ex *explanation) note(r *spreadRun) {
	for _, b := range r.below {
		ex.note(b)
	}
	if ex.of != r.e {
		if ex.Rows != nil {
			ex.Rows.note(r)
		}
		for _, step := range ex.Steps {
			step.Plan.note(r)
		}
		return
	}
	for _, n := range r.asked {
		if n.fragment < 0 {
			continue
		}
		list := ex.Fragments[n.fragment].Nodes
		for i := range list {
			if n.node == list[i].Node {
				took := float64(n.took.Microseconds()) / 1000
				list[i].Rows, list[i].Bytes, list[i].Time = &n.rows, &n.bytes, &took
			}
		}
	}
}

// lines is the plan for people.
func (ex *explanation) lines(indent string) []string {
	head := ex.Kind
	if ex.Returned != nil {
		tag := ""
		if ex.Tag != "" {
			tag = ex.Tag + ", "
		}
		head += fmt.Sprintf("  (%sactual rows=%d, bytes moved=%d, time=%.3f ms)", tag, *ex.Returned, *ex.Moved, *ex.Total)
	}
	out := []string{indent + head}
	for _, step := range ex.Steps {
		out = append(out, indent+"  Step "+plan.QuoteIdent(step.Name))
		out = append(out, step.Plan.lines(indent+"    ")...)
	}
	for _, f := range ex.Fragments {
		name := "Fragment"
		if f.Name != "" {
			name += ` "` + f.Name + `"`
		}
		if f.Moves != "" {
			name += " " + f.Moves
		}
		out = append(out, indent+"  "+name+": "+f.SQL)
		for _, w := range f.Where {
			out = append(out, indent+"    Rows: "+w)
		}
		for _, n := range f.Nodes {
			line := indent + "    Node: " + n.Node
			if n.Rows != nil {
				line += fmt.Sprintf("  (actual rows=%d, bytes=%d, time=%.3f ms)", *n.Rows, *n.Bytes, *n.Time)
			}
			out = append(out, line)
		}
	}
	if ex.Merge != "" {
		out = append(out, indent+"  Merge: "+ex.Merge)
	}
	if ex.Combine != "" {
		out = append(out, indent+"  Combine: "+ex.Combine)
	}
	if ex.Final != "" {
		out = append(out, indent+"  Final on "+ex.FinalNode+": "+ex.Final)
	}
	if ex.Rows != nil {
		out = append(out, indent+"  Rows from")
		out = append(out, ex.Rows.lines(indent+"    ")...)
	}
	for _, w := range ex.Write {
		out = append(out, indent+"  Write, "+w)
	}
	return out
}

// gathered brings the rows of a query to the home node and returns what runs there over them.
func (s *session) gathered(ctx context.Context, st *plannedStatement, e *plan.Exchange) (text string, args *arguments, err error) {
	run, err := s.beginSpread(ctx, st, e, arguments{})
	if err != nil {
		return "", nil, err
	}
	final, extra, err := s.gather(ctx, run)
	if err != nil {
		return "", nil, err
	}
	return final, &arguments{
		types: append(run.types, make([]uint32, len(extra))...), values: append(run.values, extra...),
		formats: append(run.formats, make([]int16, len(extra))...),
	}, nil
}
