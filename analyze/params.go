package analyze

import (
	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// ReplaceParams puts expressions in the place of the parameters $1, $2 and so on. It reports
// whether there was one for each.
func ReplaceParams(root *pg.Node, args []*pg.Node) bool {
	complete := true
	var replace func(protoreflect.Message)
	replace = func(m protoreflect.Message) {
		if n, ok := m.Interface().(*pg.Node); ok && n.GetParamRef() != nil {
			i := int(n.GetParamRef().Number) - 1
			if i < 0 || i >= len(args) {
				complete = false
				return
			}
			n.Node = args[i].Node
			return
		}
		m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			if fd.Kind() != protoreflect.MessageKind {
				return true
			}
			if !fd.IsList() {
				replace(v.Message())
				return true
			}
			for i := range v.List().Len() {
				replace(v.List().Get(i).Message())
			}
			return true
		})
	}
	replace(root.ProtoReflect())
	return complete
}
