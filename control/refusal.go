package control

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
)

// Refusal is an error that the admin API's caller can act on: what is wrong and the way out.
type Refusal struct {
	Status  int // of HTTP
	Message string
	Way     string
	Err     error // what is underneath, may be nil
}

func (r *Refusal) Error() string { return r.Message }

// Unwrap gives what is underneath.
func (r *Refusal) Unwrap() error { return r.Err }

// Hint is the way out.
func (r *Refusal) Hint() string { return r.Way }

func badRequest(way, format string, args ...any) *Refusal {
	return &Refusal{Status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...), Way: way}
}

func conflict(way, format string, args ...any) *Refusal {
	return &Refusal{Status: http.StatusConflict, Message: fmt.Sprintf(format, args...), Way: way}
}

func notFound(way, format string, args ...any) *Refusal {
	return &Refusal{Status: http.StatusNotFound, Message: fmt.Sprintf(format, args...), Way: way}
}

// sqlStateOf finds PostgreSQL's code of an error.
func sqlStateOf(err error) string {
	var coded interface{ SQLState() string }
	if errors.As(err, &coded) {
		return coded.SQLState()
	}
	return ""
}

// problems holds the last problem of each node, so that each is logged once and shown as long as it lasts.
type problems struct {
	mu   sync.Mutex
	text map[string]string
}

func newProblems() *problems { return &problems{text: map[string]string{}} }

// set records a node's state and says whether that is news.
func (p *problems) set(node string, err error) bool {
	text := ""
	if err != nil {
		text = err.Error()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.text[node] == text {
		return false
	}
	p.text[node] = text
	return true
}

func (p *problems) of(node string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text[node]
}
