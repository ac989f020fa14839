// Package exec turns a plan and the values of an execution into nodes: it finds the shards that
// each pin of the plan leads to under a map.
package exec

import (
	"fmt"
	"slices"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/plan"
)

// Value is an operand's value as it stands in a message.
type Value struct {
	Data   []byte
	Binary bool
	Null   bool
}

// Values looks operands up in the statement that is being executed. A value is good until the next one
// is asked for.
type Values interface {
	Value(o *plan.Operand) (Value, error)
}

// Asker knows what is not in the plan, the values and the map.
type Asker interface {
	// Canonical has PostgreSQL read a value that only it can read, and answers what CanonicalSQL gives
	// for it. As is the SQL type, modifiers included, that the value takes on.
	Canonical(key keyspace.Type, as string, text []byte) ([]byte, error)
	// Entry is a directory's entry for a key, given in its ordered encoding. With assign an unknown key
	// gets one.
	Entry(d *keyspace.Distribution, key []byte, assign bool) (entry uint64, known bool, err error)
}

// SeveralNodes is a statement whose keys lead to more than one node.
type SeveralNodes struct{ Pin plan.Pin }

func (e *SeveralNodes) Error() string {
	return fmt.Sprintf("the values of %s in this statement lead to several nodes, which is not supported yet", e.Pin.Restricted())
}

// NullKey is a new row without a key.
type NullKey struct{ Column string }

func (e *NullKey) Error() string {
	return fmt.Sprintf("the key %s of a new row is null", e.Column)
}

// Target returns the node that a Route leads to.
func Target(m *keyspace.Map, p *plan.Plan, values Values, asker Asker) (string, error) {
	if len(p.Pins) == 0 {
		return m.Home, nil
	}
	t := target{values: values, asker: asker}
	for i := range p.Pins {
		pin := &p.Pins[i]
		d := m.Distribution(pin.Distribution)
		if d == nil {
			return "", fmt.Errorf("distribution %d is not in the map", pin.Distribution)
		}
		if err := t.pin(d, pin); err != nil {
			return "", err
		}
	}
	if t.node == "" {
		return m.Home, nil // nothing can match, and any node can say so
	}
	return t.node, nil
}

// target is the one node that was found so far.
type target struct {
	values Values
	asker  Asker
	node   string
}

func (t *target) pin(d *keyspace.Distribution, p *plan.Pin) error {
	if d.Key.SingleHash() && len(p.Keys) == 1 && len(p.Keys[0].Operands) > 0 {
		return t.hashes(d, p)
	}
	shards, err := touched(d, p, t.values, t.asker)
	if err != nil {
		return err
	}
	for _, i := range shards {
		if err := t.found(p, &d.Shards[i]); err != nil {
			return err
		}
	}
	return nil
}

func (t *target) found(p *plan.Pin, s *keyspace.Shard) error {
	switch t.node {
	case "":
		t.node = s.Node
	case s.Node:
	default:
		return &SeveralNodes{*p}
	}
	return nil
}

// hashes is the hot path: one column whose hash is the point. For a plain value it allocates nothing.
func (t *target) hashes(d *keyspace.Distribution, p *plan.Pin) error {
	k := &p.Keys[0]
	for i := range k.Operands {
		o := &k.Operands[i]
		v, err := t.values.Value(o)
		if err != nil {
			return err
		}
		switch {
		case v.Null && k.Assigned:
			return &NullKey{k.Column}
		case v.Null:
			continue
		case !o.Array:
			err = t.hash(d, p, k, o.From, v)
		default:
			err = eachElement(v, func(element Value) error {
				if element.Null {
					return nil
				}
				return t.hash(d, p, k, o.From, element)
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *target) hash(d *keyspace.Distribution, p *plan.Pin, k *plan.KeyColumn, from keyspace.Type, v Value) error {
	hash, exists, err := hashOf(k, from, v, t.asker)
	if err != nil || !exists {
		return err
	}
	return t.found(p, d.FindHash(keyspace.Point(hash)))
}

// Nodes returns the nodes that have rows a pin can need, without duplicates.
func Nodes(m *keyspace.Map, p *plan.Pin, values Values, asker Asker) ([]string, error) {
	d := m.Distribution(p.Distribution)
	if d == nil {
		return nil, fmt.Errorf("distribution %d is not in the map", p.Distribution)
	}
	shards, err := touched(d, p, values, asker)
	if err != nil {
		return nil, err
	}
	var nodes []string
	for _, i := range shards {
		if !slices.Contains(nodes, d.Shards[i].Node) {
			nodes = append(nodes, d.Shards[i].Node)
		}
	}
	return nodes, nil
}

// Shards returns the indexes of the shards that a pin can need, in order.
func Shards(d *keyspace.Distribution, p *plan.Pin, values Values, asker Asker) ([]int, error) {
	return touched(d, p, values, asker)
}
