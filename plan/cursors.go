package plan

import (
	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/catalog"
)

// currentOf is the cursor of WHERE CURRENT OF, "" when there is none.
func currentOf(n *pg.Node) string {
	name := ""
	analyze.Walk(n, func(m proto.Message) bool {
		if c, ok := m.(*pg.CurrentOfExpr); ok {
			name = c.CursorName
		}
		return name == ""
	})
	return name
}

// atCursor plans WHERE CURRENT OF: the row is on the node where its cursor is, which the session knows. It must be all that the
// statement reads of distributed tables, and it must stay there.
func (p *planner) atCursor(n *pg.Node, distributed []*ref) bool {
	name := currentOf(n)
	if name == "" || len(distributed) != 1 || len(p.targets) != 1 || p.targets[0] != distributed[0] || p.rekeyed[distributed[0]] || len(p.rekeys) > 0 {
		return false
	}
	if p.placed(distributed[0].table).placement != catalog.Distributed || p.locksCopies() {
		return false
	}
	p.plan.Cursor = name
	return true
}
