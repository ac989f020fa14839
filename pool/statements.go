package pool

import "strconv"

// Statements registers which prepared statements exist on one server connection, and bounds them:
// the least recently used gives way. It belongs to whoever holds the connection.
type Statements struct {
	max    int
	last   uint64 // number of the newest name; names are never used twice on a connection
	byID   map[uint64]*statement
	latest statement // ring: latest.next is the most, latest.prev the least recently used
}

type statement struct {
	id         uint64
	name       string
	prev, next *statement
}

// NewStatements makes an empty registry for at most limit statements.
func NewStatements(limit int) *Statements {
	s := &Statements{max: max(limit, 1), byID: make(map[uint64]*statement)}
	s.latest.prev, s.latest.next = &s.latest, &s.latest
	return s
}

// Name returns the server-side name of the statement with this id, if it is there, and counts as a use.
func (s *Statements) Name(id uint64) (string, bool) {
	st := s.byID[id]
	if st == nil {
		return "", false
	}
	if s.latest.next != st {
		st.unlink()
		s.pushFront(st)
	}
	return st.name, true
}

// Add registers a statement that the caller is about to Parse and returns its new name. When the
// registry is full, evicted is the name of a statement that the caller must Close on the server.
// An id that is there already keeps its name.
func (s *Statements) Add(id uint64) (name, evicted string) {
	if name, ok := s.Name(id); ok {
		return name, ""
	}
	st := &statement{id: id}
	if len(s.byID) >= s.max {
		st = s.latest.prev
		evicted = st.name
		st.unlink()
		delete(s.byID, st.id)
		st.id = id
	}
	s.last++
	st.name = "shoal_" + strconv.FormatUint(s.last, 10)
	s.byID[id] = st
	s.pushFront(st)
	return st.name, evicted
}

// Remove forgets a statement, because its Parse failed or the caller closes it, and returns its name.
func (s *Statements) Remove(id uint64) (string, bool) {
	st := s.byID[id]
	if st == nil {
		return "", false
	}
	st.unlink()
	delete(s.byID, id)
	return st.name, true
}

// Clear forgets all statements, as DISCARD ALL and DEALLOCATE ALL do on the server.
func (s *Statements) Clear() {
	clear(s.byID)
	s.latest.prev, s.latest.next = &s.latest, &s.latest
}

// Len is the number of registered statements.
func (s *Statements) Len() int { return len(s.byID) }

func (s *Statements) pushFront(st *statement) {
	st.prev, st.next = &s.latest, s.latest.next
	st.next.prev, s.latest.next = st, st
}

func (st *statement) unlink() {
	st.prev.next, st.next.prev = st.next, st.prev
}
