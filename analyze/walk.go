package analyze

import (
	"sync"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Walk calls visit for every message of a parse tree, parents first. When visit returns false
// the children of that message are left out.
func Walk(root proto.Message, visit func(proto.Message) bool) {
	if root == nil {
		return
	}
	walk(root.ProtoReflect(), visit)
}

func walk(m protoreflect.Message, visit func(proto.Message) bool) {
	if !m.IsValid() {
		return
	}
	if _, wrapper := m.Interface().(*pg.Node); !wrapper && !visit(m.Interface()) {
		return
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if fd.Kind() != protoreflect.MessageKind {
			return true
		}
		if !fd.IsList() {
			walk(v.Message(), visit)
			return true
		}
		list := v.List()
		for i := range list.Len() {
			walk(list.Get(i).Message(), visit)
		}
		return true
	})
}

// Relations returns the relations a tree names, CTE names included, in no particular order.
func Relations(root proto.Message) []*pg.RangeVar {
	var out []*pg.RangeVar
	Walk(root, func(m proto.Message) bool {
		if rv, ok := m.(*pg.RangeVar); ok {
			out = append(out, rv)
		}
		return true
	})
	return out
}

// Calls returns the function calls of a tree.
func Calls(root proto.Message) []*pg.FuncCall {
	var out []*pg.FuncCall
	Walk(root, func(m proto.Message) bool {
		if f, ok := m.(*pg.FuncCall); ok {
			out = append(out, f)
		}
		return true
	})
	return out
}

// Name splits a list of name parts into schema and name; a catalog part is dropped.
func Name(parts []*pg.Node) (schema, name string) {
	switch n := len(parts); n {
	case 0:
		return "", ""
	case 1:
		return "", parts[0].GetString_().GetSval()
	default:
		return parts[n-2].GetString_().GetSval(), parts[n-1].GetString_().GetSval()
	}
}

// Deparse writes a tree as SQL again.
func Deparse(n *pg.Node) (string, error) {
	return pg.Deparse(&pg.ParseResult{Version: treeVersion(), Stmts: []*pg.RawStmt{{Stmt: n}}})
}

// treeVersion is the version that the grammar's library stamps on its trees.
var treeVersion = sync.OnceValue(func() int32 {
	tree, err := pg.Parse("")
	if err != nil {
		return 0
	}
	return tree.Version
})
