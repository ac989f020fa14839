package catalog

// Derived returns what compute makes of this catalog, and keeps it under key, so that a fact that
// takes a look at all tables or functions is found out once per catalog. Keys should have a type
// of their own.
func (c *Catalog) Derived(key any, compute func() any) any {
	if v, ok := c.derived.Load(key); ok {
		return v
	}
	v, _ := c.derived.LoadOrStore(key, compute())
	return v
}

type spreadKey struct{}

// Spread reports whether any table has rows outside the home node.
func (c *Catalog) Spread() bool {
	return c.Derived(spreadKey{}, func() any {
		for _, t := range c.tables {
			if t.Placement != Local {
				return true
			}
		}
		return false
	}).(bool)
}

type builtinTypesKey struct{}

// BuiltinType reports the name of a type that comes with the server: it can be written like a function that casts.
func (c *Catalog) BuiltinType(name string) bool {
	return c.Derived(builtinTypesKey{}, func() any {
		names := map[string]bool{}
		for _, t := range c.builtin.types {
			names[t.Name] = true
		}
		return names
	}).(map[string]bool)[name]
}
