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
	EachField(m, func(m protoreflect.Message) { walk(m, visit) })
}

// EachField visits the messages one level below m in the order of their fields. Range would visit them in any
// order, and plans must come out the same every time.
func EachField(m protoreflect.Message, visit func(protoreflect.Message)) {
	if _, wrapper := m.Interface().(*pg.Node); wrapper { // one of hundreds of fields
		if fd := m.WhichOneof(m.Descriptor().Oneofs().Get(0)); fd != nil {
			visit(m.Get(fd).Message())
		}
		return
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if fd.Kind() != protoreflect.MessageKind || !m.Has(fd) {
			continue
		}
		if !fd.IsList() {
			visit(m.Get(fd).Message())
			continue
		}
		list := m.Get(fd).List()
		for j := range list.Len() {
			visit(list.Get(j).Message())
		}
	}
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
	n = withoutLength(n)
	return pg.Deparse(&pg.ParseResult{Version: treeVersion(), Stmts: []*pg.RawStmt{{Stmt: n}}})
}

// withoutLength is a tree in which the type bpchar without a length is written by that name: the library writes char, which is
// char(1) when it is read again, and cuts values off.
func withoutLength(n *pg.Node) *pg.Node {
	unlimited := func(m proto.Message) bool {
		t, ok := m.(*pg.TypeName)
		schema, name := "", ""
		if ok {
			schema, name = Name(t.Names)
		}
		return schema == "pg_catalog" && name == "bpchar" && len(t.Typmods) == 0
	}
	found := false
	Walk(n, func(m proto.Message) bool {
		found = found || unlimited(m)
		return !found
	})
	if !found {
		return n
	}
	n = proto.Clone(n).(*pg.Node)
	Walk(n, func(m proto.Message) bool {
		if unlimited(m) {
			t := m.(*pg.TypeName)
			t.Names = t.Names[len(t.Names)-1:]
		}
		return true
	})
	return n
}

// treeVersion is the version that the grammar's library stamps on its trees.
var treeVersion = sync.OnceValue(func() int32 {
	tree, err := pg.Parse("")
	if err != nil {
		return 0
	}
	return tree.Version
})
