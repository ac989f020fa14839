package keyspace

import "strings"

// StrategyOf writes the strategy of a table with these key columns as create_distributed_table reads it:
// list(region), hash(tenant_id).
func (k *Key) StrategyOf(columns []string) string {
	parts := make([]string, len(k.Dimensions))
	for i, d := range k.Dimensions {
		var names []string
		for _, c := range d.Columns {
			if c < len(columns) {
				names = append(names, columns[c])
			}
		}
		parts[i] = string(d.Method)
		if d.Method != Schema {
			parts[i] += "(" + strings.Join(names, ", ") + ")"
		}
	}
	return strings.Join(parts, ", ")
}
