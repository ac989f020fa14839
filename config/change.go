package config

import (
	"reflect"
	"slices"
	"strings"
)

// Changes compares a running configuration with a newly read one: the keys that take effect at
// once, and those that need a restart.
func Changes(running, next *Config) (live, restart []string) {
	compare(reflect.ValueOf(*running), reflect.ValueOf(*next), "", func(key string, isLive bool) {
		if isLive {
			live = append(live, key)
		} else {
			restart = append(restart, key)
		}
	})
	slices.Sort(live)
	slices.Sort(restart)
	return live, restart
}

// WithLive is the running configuration with the live keys of a newly read one. What waits for a
// restart stays as it is, so that the next comparison still finds it.
func (c *Config) WithLive(next *Config) *Config {
	merged := *c
	copyLive(reflect.ValueOf(&merged).Elem(), reflect.ValueOf(next).Elem())
	return &merged
}

func copyLive(to, from reflect.Value) {
	for i := range to.NumField() {
		field := to.Type().Field(i)
		switch {
		case field.Tag.Get("yaml") == "":
		case field.Type.Kind() == reflect.Struct:
			copyLive(to.Field(i), from.Field(i))
		case field.Tag.Get("reload") == "live":
			to.Field(i).Set(from.Field(i))
		}
	}
}

func compare(a, b reflect.Value, section string, report func(key string, live bool)) {
	t := a.Type()
	for i := range t.NumField() {
		field := t.Field(i)
		tag, ok := field.Tag.Lookup("yaml")
		if !ok {
			continue
		}
		name, _, _ := strings.Cut(tag, ",")
		key := join(section, name)
		if field.Type.Kind() == reflect.Struct {
			compare(a.Field(i), b.Field(i), key, report)
			continue
		}
		if !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			report(key, field.Tag.Get("reload") == "live")
		}
	}
}
