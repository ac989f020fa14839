package plan

import "fmt"

// Refusal is a statement that is not proven right over several nodes.
type Refusal struct {
	Message string
	Detail  string
	Hint    string
	Code    string // SQLSTATE; 0A000 unless PostgreSQL has a better one
}

func (r *Refusal) Error() string { return r.Message }

// SQLState is the SQLSTATE of the refusal.
func (r *Refusal) SQLState() string {
	if r.Code == "" {
		return "0A000"
	}
	return r.Code
}

func refuse(hint, format string, args ...any) *Refusal {
	return &Refusal{Message: fmt.Sprintf(format, args...), Hint: hint}
}
