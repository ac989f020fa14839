package router

import (
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/pgwire"
)

// withVerifier is the statement's text, with a password replaced by its SCRAM verifier: each node
// would choose a salt of its own, and a client's proof would then fit one node only.
func (s *session) withVerifier(st *plannedStatement) (string, error) {
	upper := strings.ToUpper(st.text)
	if !strings.Contains(upper, "PASSWORD") || !strings.Contains(upper, "ROLE") && !strings.Contains(upper, "USER") && !strings.Contains(upper, "GROUP") {
		return st.text, nil
	}
	stmts, err := analyze.Parse(st.text)
	if err != nil || len(stmts) != 1 {
		return st.text, err
	}
	var options []*pg.Node
	switch e := stmts[0].Tree.Node.(type) {
	case *pg.Node_CreateRoleStmt:
		options = e.CreateRoleStmt.Options
	case *pg.Node_AlterRoleStmt:
		options = e.AlterRoleStmt.Options
	}
	changed := false
	for _, o := range options {
		d := o.GetDefElem()
		if d.GetDefname() != "password" || d.GetArg() == nil {
			continue
		}
		password := d.Arg.GetString_().GetSval()
		if _, err := pgwire.ParseVerifier(password); err == nil || strings.HasPrefix(password, "md5") && len(password) == 35 || password == "" {
			continue
		}
		verifier, err := pgwire.BuildVerifier(password)
		if err != nil {
			return "", err
		}
		d.Arg = pg.MakeStrNode(verifier)
		changed = true
	}
	if !changed {
		return st.text, nil
	}
	return analyze.Deparse(stmts[0].Tree)
}
