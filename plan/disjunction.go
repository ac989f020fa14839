package plan

import (
	pg "github.com/pganalyze/pg_query_go/v6"
)

// maxArms bounds how many alternatives are kept of a column; more of them restrict nothing.
const maxArms = 1000

// disjunction keeps the columns that every arm of an OR restricts: each has one of the values that
// some arm allows.
func (p *planner) disjunction(b *block, arms []*pg.Node) []condition {
	var order []column
	common := map[column]*restriction{}
	for i, arm := range arms {
		columns, facts := byColumn(p.conditions(b, arm))
		if i == 0 {
			order = columns
			for _, c := range columns {
				common[c] = conjunction(facts[c])
			}
			continue
		}
		for _, c := range order {
			if common[c] == nil {
				continue
			}
			if len(facts[c]) == 0 {
				common[c] = nil
				continue
			}
			common[c] = either(common[c], conjunction(facts[c]))
		}
	}
	var all []condition
	for _, c := range order {
		if common[c] != nil {
			all = append(all, condition{left: c, fact: common[c]})
		}
	}
	return all
}

// byColumn collects the restrictions of each column, in the order of the columns.
func byColumn(conds []condition) (order []column, facts map[column][]*restriction) {
	facts = map[column][]*restriction{}
	for _, c := range conds {
		if c.fact == nil {
			continue
		}
		if facts[c.left] == nil {
			order = append(order, c.left)
		}
		facts[c.left] = append(facts[c.left], c.fact)
	}
	return order, facts
}

// conjunction is one restriction that follows from all of them together.
func conjunction(facts []*restriction) *restriction {
	var bounds []Bound
	for _, f := range facts {
		if f.ops != nil {
			return f
		}
		if len(f.union) == 1 {
			bounds = append(bounds, f.union[0]...)
		}
	}
	if bounds == nil {
		return facts[0]
	}
	return &restriction{union: Union{bounds}}
}

// either is the restriction to the values of one or the other.
func either(a, b *restriction) *restriction {
	if a.ops != nil && b.ops != nil {
		return &restriction{ops: append(append([]Operand{}, a.ops...), b.ops...)}
	}
	union := append(append(Union{}, a.alternatives()...), b.alternatives()...)
	if len(union) > maxArms {
		return nil
	}
	return &restriction{union: union}
}

func (r *restriction) alternatives() Union {
	if r.ops == nil {
		return r.union
	}
	union := make(Union, len(r.ops))
	for i, op := range r.ops {
		union[i] = []Bound{{Equal, op}}
	}
	return union
}
