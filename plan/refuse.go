package plan

import "fmt"

// Refusal is a statement that is not proven right over several nodes.
type Refusal struct {
	Message string
	Detail  string
	Hint    string
	Code    string // SQLSTATE; 0A000 unless PostgreSQL has a better one
	// several is set for a statement that is refused only because it needs rows of several nodes.
	several bool
}

func (r *Refusal) Error() string { return r.Message }

// SQLState is the SQLSTATE of the refusal.
func (r *Refusal) SQLState() string {
	if r.Code == "" {
		return "0A000"
	}
	return r.Code
}

// refuseSeveral refuses what one node cannot do; an exchange may be able to.
func refuseSeveral(hint, format string, args ...any) *Refusal {
	r := refuse(hint, format, args...)
	r.several = true
	return r
}

func refuse(hint, format string, args ...any) *Refusal {
	return &Refusal{Message: fmt.Sprintf(format, args...), Hint: hint}
}
