package pool

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestStatements compares the registry with a slice in order of use, as it is on the server.
func TestStatements(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		limit := rapid.IntRange(1, 4).Draw(r, "limit")
		s := NewStatements(limit)
		type entry struct {
			id   uint64
			name string
		}
		var model []entry // most recently used last
		names := make(map[string]bool)
		find := func(id uint64) int { return slices.IndexFunc(model, func(e entry) bool { return e.id == id }) }
		for range rapid.IntRange(1, 50).Draw(r, "steps") {
			id := rapid.Uint64Range(0, 6).Draw(r, "id")
			i := find(id)
			switch rapid.SampledFrom([]string{"name", "add", "remove", "clear"}).Draw(r, "what") {
			case "name":
				name, ok := s.Name(id)
				if ok != (i >= 0) || ok && name != model[i].name {
					r.Fatalf("Name(%d) = %q, %v", id, name, ok)
				}
				if ok {
					model = append(slices.Delete(model, i, i+1), entry{id, name})
				}
			case "add":
				name, evicted := s.Add(id)
				switch {
				case i >= 0:
					if name != model[i].name || evicted != "" {
						r.Fatalf("Add(%d) of a known one = %q, %q", id, name, evicted)
					}
					model = slices.Delete(model, i, i+1)
				case names[name]:
					r.Fatalf("name %q was used before", name)
				case len(model) == limit:
					if evicted != model[0].name {
						r.Fatalf("evicted %q, want %q", evicted, model[0].name)
					}
					model = model[1:]
				case evicted != "":
					r.Fatalf("evicted %q with room left", evicted)
				}
				names[name] = true
				model = append(model, entry{id, name})
			case "remove":
				name, ok := s.Remove(id)
				if ok != (i >= 0) || ok && name != model[i].name {
					r.Fatalf("Remove(%d) = %q, %v", id, name, ok)
				}
				if ok {
					model = slices.Delete(model, i, i+1)
				}
			case "clear":
				s.Clear()
				model = nil
			}
			if s.Len() != len(model) {
				r.Fatalf("Len %d, want %d", s.Len(), len(model))
			}
		}
	})
}

func TestStatementsLookupAllocatesNothing(t *testing.T) {
	s := NewStatements(10)
	s.Add(1)
	s.Add(2)
	if n := testing.AllocsPerRun(100, func() { s.Name(1); s.Name(2) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
