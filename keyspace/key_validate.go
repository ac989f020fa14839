package keyspace

import (
	"errors"
	"fmt"
	"slices"
)

func (k *Key) validate() error {
	if len(k.Dimensions) == 0 {
		return errors.New("a key without dimensions")
	}
	for _, t := range k.Types {
		if !t.Valid() {
			return errors.New("a key column of no known type")
		}
		if t.Canonical() != t {
			return fmt.Errorf("key type %s, which stands for %s", t, t.Canonical())
		}
	}
	for i := range k.Dimensions {
		if err := k.validateDimension(i); err != nil {
			return err
		}
	}
	return k.validateColumns()
}

// validateColumns makes sure that every key column has a part in the point, and one only: a second one would say
// nothing new. A list of one column is the exception, because its region alone spreads nothing.
func (k *Key) validateColumns() error {
	uses := make([]int, len(k.Types))
	for i, d := range k.Dimensions {
		for _, c := range d.Columns {
			if c < 0 || c >= len(k.Types) {
				return fmt.Errorf("key column %d of %d", c+1, len(k.Types))
			}
			listed := i == 1 && k.Dimensions[0].Method == List && d.Method == Hash &&
				slices.Equal(d.Columns, k.Dimensions[0].Columns)
			if !listed {
				uses[c]++
			}
		}
	}
	for c, n := range uses {
		if n != 1 {
			return fmt.Errorf("key column %d in %d dimensions; it is in one", c+1, n)
		}
	}
	return nil
}

func (k *Key) validateDimension(i int) error {
	d := &k.Dimensions[i]
	if d.Method != List && (len(d.Regions) > 0 || d.Default != "") {
		return fmt.Errorf("regions for a %s; only a list has them", d.Method)
	}
	switch d.Method {
	case Hash, Range:
		if len(d.Columns) == 0 {
			return fmt.Errorf("0 key columns for a %s; it has at least one", d.Method)
		}
	case Directory, Schema:
		if len(k.Dimensions) > 1 {
			return fmt.Errorf("a %s among other dimensions; it stands alone", d.Method)
		}
		if want := map[Method]int{Directory: 1, Schema: 0}[d.Method]; len(d.Columns) != want {
			return fmt.Errorf("%d key columns for a %s; it has %d", len(d.Columns), d.Method, want)
		}
	case List:
		if i > 0 {
			return errors.New("a list that is not the first dimension")
		}
		return k.validateList(d)
	default:
		return fmt.Errorf("strategy %q, which is not known; it is hash, range, list, directory, schema or a sequence of them", k.Strategy())
	}
	return nil
}

func (k *Key) validateList(d *Dimension) error {
	if len(d.Columns) != 1 || d.Columns[0] < 0 || d.Columns[0] >= len(k.Types) {
		return fmt.Errorf("%d key columns for a list; it has one", len(d.Columns))
	}
	if len(d.Regions) == 0 {
		return errors.New("a list without regions")
	}
	names, ids, values := map[string]bool{}, map[uint16]bool{}, map[string]string{}
	for _, r := range d.Regions {
		if r.Name == "" || r.ID == 0 {
			return errors.New("a region without a name or an ID")
		}
		if names[r.Name] || ids[r.ID] {
			return fmt.Errorf("region %q, with ID %d, twice", r.Name, r.ID)
		}
		names[r.Name], ids[r.ID] = true, true
		for _, text := range r.Values {
			t := k.Types[d.Columns[0]]
			b, err := AppendOrdered(nil, t, Value{Data: []byte(text), From: t})
			if err != nil {
				return fmt.Errorf("the value %q of type %s in region %q: %w", text, t, r.Name, err)
			}
			if other, taken := values[string(b)]; taken {
				return fmt.Errorf("the value %q in regions %q and %q", text, other, r.Name)
			}
			values[string(b)] = r.Name
		}
	}
	if d.Default != "" && !names[d.Default] {
		return fmt.Errorf("the default region %q, which is not declared", d.Default)
	}
	return nil
}
